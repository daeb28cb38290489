/** What differs between two trees: in numbers, by file, and as a patch. */

import { isUtf8 } from 'node:buffer';
import { nameBytes, nameText } from '../../base/index.ts';
import type { ChangeCounts, WorkspaceFileChange } from '../../protocol/index.ts';
import type { GitProgram } from './git-program.ts';

/** No external program, no text conversion, no colour: bytes as they are. */
const plain = ['--no-ext-diff', '--no-textconv', '--no-color', '--ignore-submodules=none'];

interface Numbers {
  readonly insertions: number | null;
  readonly deletions: number | null;
}

const kinds = { A: 'added', M: 'modified', D: 'deleted', R: 'renamed', T: 'typeChanged', C: 'added' } as const;

export async function diffTrees(
  git: GitProgram,
  repository: string,
  sides: { readonly from: string; readonly to: string },
  options: { readonly limit: number; readonly timeoutMs: number },
): Promise<{
  readonly counts: ChangeCounts;
  readonly files: readonly WorkspaceFileChange[];
  readonly hasMore: boolean;
}> {
  const words = ['diff-tree', '-r', '-z', '-M', '--no-abbrev', ...plain, '--raw', '--numstat', sides.from, sides.to];
  const { stdout } = await git.run(repository, words, { isHostile: true, timeoutMs: options.timeoutMs });
  const changes = parseDiff(stdout);
  const sum = (pick: (change: WorkspaceFileChange) => number | null) =>
    changes.reduce((total, change) => total + (pick(change) ?? 0), 0);
  return {
    counts: {
      files: changes.length,
      insertions: sum((change) => change.insertions),
      deletions: sum((change) => change.deletions),
    },
    files: changes.slice(0, options.limit),
    hasMore: changes.length > options.limit,
  };
}

/** With `--raw --numstat -z` come all raw records, then all numbers, in the same order. */
function parseDiff(stdout: Buffer): WorkspaceFileChange[] {
  const fields = stdout.toString('latin1').split('\0');
  const raws: { readonly record: string; readonly from: string | null; readonly path: string }[] = [];
  let at = 0;
  while (fields[at]?.startsWith(':')) {
    const record = fields[at++]!;
    const isPair = /[RC]\d*$/.test(record);
    const from = isPair ? fields[at++]! : null;
    raws.push({ record, from, path: fields[at++]! });
  }
  return raws.map(({ record, from, path }) => {
    const [insertions, deletions, name] = fields[at++]!.split('\t') as [string, string, string];
    if (name === '') at += 2; // Of a pair the two names follow.
    return changeOf({ record, from, path }, { insertions: numberOf(insertions), deletions: numberOf(deletions) });
  });
}

function changeOf(
  { record, from, path }: { readonly record: string; readonly from: string | null; readonly path: string },
  numbers: Numbers,
): WorkspaceFileChange {
  const [modeBefore, modeAfter, , , status] = record.slice(1).split(' ') as [string, string, string, string, string];
  const bytes = nameBytes(path);
  return {
    path: nameText(path),
    pathBase64: isUtf8(bytes) ? null : bytes.toString('base64'),
    kind: kinds[status[0] as keyof typeof kinds],
    from: from === null ? null : nameText(from),
    modeBefore: modeBefore === '000000' ? null : modeBefore,
    modeAfter: modeAfter === '000000' ? null : modeAfter,
    ...numbers,
  };
}

/** `-`: binary. */
function numberOf(text: string): number | null {
  return text === '-' ? null : Number(text);
}

export function patchBetween(
  git: GitProgram,
  repository: string,
  sides: { readonly from: string; readonly to: string },
  call: { readonly signal?: AbortSignal | undefined; readonly timeoutMs: number },
): AsyncGenerator<Buffer, void> {
  const words = ['diff-tree', '-r', '-p', '-M', '--binary', '--full-index', ...plain, sides.from, sides.to];
  return git.stream(repository, words, { isHostile: true, ...call });
}
