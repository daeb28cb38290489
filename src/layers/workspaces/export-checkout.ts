/**
 * A version as a checkout: a tar with a `.git` in which git works, then the files. The history goes back so many commits and is shallow beyond. Its
 * configuration is made here, and nothing in it tells where the files come from.
 */
import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { readCommit } from './commits.ts';
import type { WorkspaceLimits } from './content-limits.ts';
import type { GitProgram } from './git-program.ts';
import { indexFile } from './index-file.ts';
import type { Staging } from './staging.ts';
import { tarHeader, tarPadding } from './tar-writer.ts';
import { filesOf, type TreeFile } from './verify-tree.ts';

const checkoutConfig = `[core]
	repositoryformatversion = 0
	filemode = true
	bare = false
	logallrefupdates = true
	trustctime = false
	checkStat = minimal
`;
/** git takes a file for changed in doubt if it is not older than the index. */
const indexAfterSeconds = 2;

interface ExportOptions {
  readonly limits: WorkspaceLimits;
  readonly signal?: AbortSignal | undefined;
}

/** The staging is only for its pack: it is removed when the bytes have been read, or nobody reads them any more. */
export async function* exportCheckout(
  git: GitProgram,
  open: () => Promise<Staging>,
  commit: string,
  options: ExportOptions,
): AsyncGenerator<Uint8Array, void> {
  const { limits, signal } = options;
  const staging = await open();
  try {
    const { tree, committedAtSeconds } = await commitFacts(git, staging.path, commit);
    const shallow = await packHistory(git, staging, commit, options);
    const files: TreeFile[] = [];
    for await (const file of filesOf(git, staging.path, tree, limits, signal)) files.push(file);
    const index = indexFile(files, committedAtSeconds);
    yield* gitDirectory(staging, { commit, shallow, index, modifiedAtSeconds: committedAtSeconds });
    yield* exportArchive(git, staging.path, commit, options);
  } finally {
    await staging.remove();
  }
}

export function exportArchive(
  git: GitProgram,
  repository: string,
  commit: string,
  { limits, signal }: ExportOptions,
): AsyncGenerator<Buffer, void> {
  return git.stream(repository, ['archive', '--format=tar', commit], { signal, timeoutMs: limits.gitMs });
}

/** What `git archive` gives files as their time is the committer's. */
async function commitFacts(
  git: GitProgram,
  repository: string,
  commit: string,
): Promise<{ readonly tree: string; readonly committedAtSeconds: number }> {
  const { tree } = await readCommit(git, repository, commit);
  const seconds = Number(await git.line(repository, ['show', '-s', '--format=%ct', commit]));
  return { tree, committedAtSeconds: Math.max(0, Math.min(seconds, 0x7fff_ffff)) };
}

/** Returns the commits whose parents are left out. */
async function packHistory(
  git: GitProgram,
  staging: Staging,
  commit: string,
  { limits, signal }: ExportOptions,
): Promise<readonly string[]> {
  const call = { signal, timeoutMs: limits.gitMs };
  const words = ['rev-list', '--parents', `--max-count=${limits.checkoutCommits}`, commit];
  const lines = (await git.run(staging.path, words, call)).stdout.toString('utf8').trim().split('\n');
  const rows = lines.map((line) => line.split(' '));
  const known = new Set(rows.map(([id]) => id));
  const shallow = rows.filter(([, ...parents]) => parents.some((parent) => !known.has(parent))).map(([id]) => id!);
  const stdin = `${shallow.map((id) => `--shallow ${id}\n`).join('')}${commit}\n`;
  const pack = ['pack-objects', '-q', '--revs', '--delta-base-offset', join(staging.path, 'objects/pack/pack')];
  await git.run(staging.path, pack, { ...call, stdin });
  return shallow;
}

async function* gitDirectory(
  staging: Staging,
  given: {
    readonly commit: string;
    readonly shallow: readonly string[];
    readonly index: Buffer;
    readonly modifiedAtSeconds: number;
  },
): AsyncGenerator<Uint8Array, void> {
  const { modifiedAtSeconds } = given;
  for (const name of ['.git', ...directories.map((directory) => `.git/${directory}`)]) {
    yield tarHeader({ name, type: 'directory', mode: 0o755, sizeBytes: 0, modifiedAtSeconds });
  }
  const texts: (readonly [name: string, content: string | Buffer])[] = [
    ['HEAD', 'ref: refs/heads/main\n'],
    ['config', checkoutConfig],
    ['packed-refs', `# pack-refs with: peeled fully-peeled sorted \n${given.commit} refs/heads/main\n`],
    ['info/exclude', ''],
    ...(given.shallow.length > 0 ? [['shallow', `${given.shallow.join('\n')}\n`] as const] : []),
    ['index', given.index],
  ];
  for (const [name, content] of texts) {
    const bytes = Buffer.from(content);
    const late = name === 'index' ? indexAfterSeconds : 0;
    const facts = { sizeBytes: bytes.byteLength, modifiedAtSeconds: modifiedAtSeconds + late };
    yield tarHeader({ name: `.git/${name}`, type: 'file', mode: 0o644, ...facts });
    yield bytes;
    yield tarPadding(bytes.byteLength);
  }
  const packs = join(staging.path, 'objects/pack');
  for (const name of (await readdir(packs)).filter((one) => /\.(?:pack|idx)$/.test(one))) {
    const { size } = await stat(join(packs, name));
    const path = `.git/objects/pack/${name}`;
    yield tarHeader({ name: path, type: 'file', mode: 0o444, sizeBytes: size, modifiedAtSeconds });
    yield* createReadStream(join(packs, name)) as AsyncIterable<Buffer>;
    yield tarPadding(size);
  }
}

const directories = ['objects', 'objects/pack', 'objects/info', 'refs', 'refs/heads', 'refs/tags', 'info'];
