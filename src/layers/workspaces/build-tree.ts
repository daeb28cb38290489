/** Makes a tree from another and what differs, by one `git fast-import` in a staging: however much it is, it becomes one pack. */
import { nameBytes } from '../../base/index.ts';
import type { WorkspaceLimits } from './content-limits.ts';
import type { GitProgram } from './git-program.ts';
import type { Staging } from './staging.ts';

export type TreeStep =
  | {
      readonly kind: 'file';
      /** Bytes as latin1, as in every step. */
      readonly path: string;
      readonly mode: FileMode;
      /** Exactly what `content` gives. */
      readonly sizeBytes: number;
      readonly content: AsyncIterable<Uint8Array>;
    }
  /** Another file of the tree as it is then. */
  | { readonly kind: 'copy'; readonly from: string; readonly path: string }
  | { readonly kind: 'remove'; readonly path: string };

export type FileMode = '100644' | '100755' | '120000';

const helperRef = 'refs/heads/built';

/** Fails where git does, for example when a copy's source is not there; nothing is adopted here. */
export async function buildTree(
  git: GitProgram,
  staging: Staging,
  options: {
    /** A tree. */
    readonly base: string | null;
    readonly steps: AsyncIterable<TreeStep>;
    readonly limits: Pick<WorkspaceLimits, 'gitMs'>;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<string> {
  const { signal, limits } = options;
  const words = ['fast-import', '--quiet', '--done', '--depth=0', '--date-format=raw'];
  await git.run(staging.path, words, { stdin: orders(options), signal, timeoutMs: limits.gitMs });
  return await git.line(staging.path, ['rev-parse', '--verify', '-q', `${helperRef}^{tree}`]);
}

async function* orders(options: {
  readonly base: string | null;
  readonly steps: AsyncIterable<TreeStep>;
}): AsyncGenerator<Uint8Array, void> {
  yield Buffer.from(`commit ${helperRef}\ncommitter build <build@invalid> 0 +0000\ndata 0\n`);
  if (options.base !== null) yield Buffer.from(`M 040000 ${options.base} ""\n`);
  for await (const step of options.steps) {
    if (step.kind === 'remove') yield Buffer.from(`D ${quoted(step.path)}\n`);
    else if (step.kind === 'copy') yield Buffer.from(`C ${quoted(step.from)} ${quoted(step.path)}\n`);
    else {
      yield Buffer.from(`M ${step.mode} inline ${quoted(step.path)}\ndata ${step.sizeBytes}\n`);
      yield* step.content;
      yield Buffer.from('\n');
    }
  }
  yield Buffer.from('\ndone\n');
}

/** As C writes it: every byte that could mean something is three octal digits. */
function quoted(path: string): string {
  const text = path.replaceAll(/[^A-Za-z0-9_./ -]/g, (byte) => `\\${byte.charCodeAt(0).toString(8).padStart(3, '0')}`);
  return `"${text}"`;
}

export async function* oneChunk(text: string): AsyncGenerator<Uint8Array, void> {
  yield nameBytes(text);
}
