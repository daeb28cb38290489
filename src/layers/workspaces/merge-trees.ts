/** The three-way merge of trees: only objects are written, and only where both sides fit together is anything of them kept. */
import { nameText, zeroSeparated } from '../../base/index.ts';
import type { ConflictSide, MergeOutcome, WorkspaceConflict } from '../../protocol/index.ts';
import { commitBytes } from './commits.ts';
import type { GitProgram } from './git-program.ts';
import type { Staging } from './staging.ts';
import { diffTrees } from './tree-diff.ts';

interface MergeSides {
  readonly base: string;
  readonly ours: string;
  readonly theirs: string;
}

type Stages = Map<
  string,
  Partial<Record<'base' | 'ours' | 'theirs', { readonly mode: string; readonly blob: string }>>
>;

const stageNames = { '1': 'base', '2': 'ours', '3': 'theirs' } as const;
const binaryMessage = /^CONFLICT \(binary/;
const messageKinds: readonly (readonly [pattern: RegExp, kind: WorkspaceConflict['kind']])[] = [
  [binaryMessage, 'binary'],
  [/^CONFLICT \((?:file\/directory|distinct modes|distinct types|directory rename unclear)/, 'type'],
  [/^CONFLICT \(rename/, 'rename'],
  [/^CONFLICT \(modify\/delete/, 'modifyDelete'],
  [/^CONFLICT \(add\/add/, 'addAdd'],
  [/^CONFLICT \(contents?/, 'content'],
];

/** Trees, not commits. */
export async function mergeTrees(
  git: GitProgram,
  staging: Staging,
  sides: MergeSides,
  call: { readonly signal?: AbortSignal | undefined; readonly timeoutMs: number },
): Promise<MergeOutcome> {
  const { base, ours, theirs } = sides;
  const counted = async (tree: string): Promise<MergeOutcome> => {
    const { counts } = await diffTrees(git, staging.path, { from: ours, to: tree }, { limit: 0, ...call });
    return { kind: 'merged', tree, counts };
  };
  if (ours === base || ours === theirs) return await counted(theirs);
  if (theirs === base) return await counted(ours);
  // merge-tree finds the base as the common ancestor, so the three trees become a small history.
  const root = await helperCommit(git, staging.path, base, []);
  const left = await helperCommit(git, staging.path, ours, [root]);
  const right = await helperCommit(git, staging.path, theirs, [root]);
  const words = ['merge-tree', '--write-tree', '-z', '--messages', left, right];
  const { code, stdout } = await git.run(staging.path, words, { accept: [1], isHostile: true, ...call });
  const fields = zeroSeparated(stdout);
  const tree = fields[0]!;
  if (code === 0) {
    await staging.adopt(new Set([root, left, right]));
    return await counted(tree);
  }
  return { kind: 'conflicts', conflicts: await conflictsOf(git, staging.path, fields.slice(1)) };
}

async function helperCommit(
  git: GitProgram,
  repository: string,
  tree: string,
  parents: readonly string[],
): Promise<string> {
  const nobody = { name: 'merge', email: 'merge@invalid' };
  const stdin = commitBytes({ tree, parents, author: nobody, atMs: 0, message: 'merge', trailers: [] });
  return await git.line(repository, ['hash-object', '-t', 'commit', '-w', '--stdin'], { stdin });
}

/** `mode id stage TAB name` for each stage of each path in conflict, an empty field, then messages: a count of paths, the paths, the kind, the text. */
async function conflictsOf(
  git: GitProgram,
  repository: string,
  fields: readonly string[],
): Promise<WorkspaceConflict[]> {
  const stages: Stages = new Map();
  let at = 0;
  for (; fields[at] !== undefined && fields[at] !== ''; at++) {
    const [, mode, blob, stage, path] = /^(\d+) ([0-9a-f]+) ([123])\t(.*)$/s.exec(fields[at]!) as unknown as string[];
    const known = stages.get(path!) ?? {};
    known[stageNames[stage as keyof typeof stageNames]] = { mode: mode!, blob: blob! };
    stages.set(path!, known);
  }
  const messages = messagesOf(fields.slice(at + 1));
  const sizes = await sizesOf(
    git,
    repository,
    [...stages.values()].flatMap((known) => Object.values(known)),
  );
  return [...stages].map(([path, known]) => {
    const side = (name: 'base' | 'ours' | 'theirs'): ConflictSide | null => {
      const found = known[name];
      return found === undefined ? null : { ...found, sizeBytes: sizes.get(found.blob) ?? 0 };
    };
    const sides = { base: side('base'), ours: side('ours'), theirs: side('theirs') };
    return { path: nameText(path), kind: kindOf(messages.get(path) ?? [], sides), ...sides };
  });
}

function messagesOf(fields: readonly string[]): Map<string, string[]> {
  const messages = new Map<string, string[]>();
  for (let at = 0; at < fields.length; ) {
    const count = Number(fields[at++]);
    const paths = fields.slice(at, at + count);
    at += count;
    const [kind, text] = [fields[at++] ?? '', fields[at++] ?? ''];
    const said = text.startsWith('CONFLICT') ? text : kind;
    for (const path of paths) messages.set(path, [...(messages.get(path) ?? []), said]);
  }
  return messages;
}

/** By what git says of the path, and where it says nothing by what the sides have. */
function kindOf(
  messages: readonly string[],
  sides: Pick<WorkspaceConflict, 'base' | 'ours' | 'theirs'>,
): WorkspaceConflict['kind'] {
  for (const [pattern, kind] of messageKinds) if (messages.some((message) => pattern.test(message))) return kind;
  if (sides.ours === null || sides.theirs === null) return 'modifyDelete';
  const types = new Set([sides.ours, sides.theirs].map(({ mode }) => mode.slice(0, 3)));
  if (types.size > 1) return 'type';
  return sides.base === null ? 'addAdd' : 'content';
}

export async function sizesOf(
  git: GitProgram,
  repository: string,
  blobs: readonly { readonly blob: string }[],
): Promise<ReadonlyMap<string, number>> {
  if (blobs.length === 0) return new Map();
  const stdin = `${[...new Set(blobs.map(({ blob }) => blob))].join('\n')}\n`;
  const { stdout } = await git.run(repository, ['cat-file', '--batch-check=%(objectname) %(objectsize)'], { stdin });
  const lines = stdout.toString('utf8').trimEnd().split('\n');
  return new Map(lines.map((line) => line.split(' ') as [string, string]).map(([id, size]) => [id, Number(size)]));
}
