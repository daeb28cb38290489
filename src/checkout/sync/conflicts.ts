/**
 * Where the sandbox's side lies when it could not be applied: on a ref, and as files in a folder, with the commands to go on. They stay until
 * somebody removes them, or until the checkout has what they hold.
 */
import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setRef } from './branch-move.ts';
import { type Checkout, shadowCall, userCall } from './checkout.ts';
import { git, gitLine, nameBytes, nameText, zeroSeparated } from './git-process.ts';
import { giveToUser } from './packs.ts';
import type { PullConflict } from './pull-merge.ts';
import { eachBlob, type TreeChange, type TreeEntry } from './trees.ts';

interface Kept {
  readonly ref: string;
  readonly conflicts: readonly PullConflict[];
  /** The content that the sandbox gave to each conflicting path; null: it removed it. */
  readonly wanted: readonly { readonly name: string; readonly id: string | null }[];
}

export interface ConflictInput {
  readonly sandboxId: string;
  readonly conflicts: readonly PullConflict[];
  /** The sandbox's snapshot. */
  readonly commit: string;
  readonly changes: readonly TreeChange[];
  /** With markers. */
  readonly mergedTree: string;
  /** What the user's repository has already. */
  readonly head: string | null;
}

export async function keepConflict(
  checkout: Checkout,
  input: ConflictInput,
): Promise<{ readonly ref: string; readonly folder: string }> {
  const name = `${input.sandboxId}-${input.commit.slice(0, 12)}`;
  const ref = `refs/atoll/conflicts/${name}`;
  const folder = join(checkout.directory, 'conflicts', name);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true, mode: 0o700 });
  if (checkout.kind === 'git') {
    await giveToUser(checkout, [input.commit], input.head === null ? [] : [input.head]);
    await setRef(checkout, ref, input.commit);
  } else {
    await gitLine(['update-ref', ref, input.commit], shadowCall(checkout));
  }
  const inConflict = new Set(input.conflicts.map(({ path }) => path));
  const sent = input.changes.flatMap(({ name: path, to }) => (to === null ? [] : [{ name: path, ...to }]));
  await writeCopies(checkout, join(folder, 'sandbox'), sent);
  await writeMerged(checkout, input, folder);
  const wanted = input.changes
    .filter(({ name: path }) => inConflict.has(nameText(path)))
    .map(({ name: path, to }) => ({ name: path, id: to?.id ?? null }));
  const kept: Kept = { ref, conflicts: input.conflicts, wanted };
  await writeFile(join(folder, 'conflict.json'), JSON.stringify(kept, null, 2));
  await writeFile(join(folder, 'README.txt'), readme(checkout, { ref, folder, conflicts: input.conflicts }));
  return { ref, folder };
}

/** Removes what the checkout has by now, and answers the folders that are left. */
export async function settleConflicts(checkout: Checkout, tree: string | undefined): Promise<string[]> {
  const top = join(checkout.directory, 'conflicts');
  const left: string[] = [];
  for (const name of await readdir(top).catch(() => [])) {
    const folder = join(top, name);
    const text = await readFile(join(folder, 'conflict.json'), 'utf8').catch(() => undefined);
    if (text === undefined) continue;
    const kept = JSON.parse(text) as Kept;
    if (tree !== undefined && (await hasAll(checkout, tree, kept))) {
      const call = checkout.kind === 'git' ? userCall(checkout) : shadowCall(checkout);
      await gitLine(['update-ref', '-d', kept.ref], call);
      await rm(folder, { recursive: true, force: true });
    } else left.push(folder);
  }
  return left;
}

async function hasAll(checkout: Checkout, tree: string, kept: Kept): Promise<boolean> {
  if (kept.wanted.length === 0) return false;
  const { stdout } = await git(['ls-tree', '-r', '-z', tree], shadowCall(checkout));
  const ids = new Map(
    zeroSeparated(stdout).map((line) => [line.slice(line.indexOf('\t') + 1), line.split(/[ \t]/)[2] ?? '']),
  );
  return kept.wanted.every(({ name, id }) => (ids.get(name) ?? null) === id);
}

async function writeMerged(checkout: Checkout, input: ConflictInput, folder: string): Promise<void> {
  const both = input.conflicts.filter(({ reason }) => reason === 'both_changed').map(({ path }) => path);
  if (both.length === 0) return;
  const { stdout } = await git(['ls-tree', '-r', '-z', input.mergedTree], shadowCall(checkout));
  const wanted = new Set(both);
  const merged = zeroSeparated(stdout).flatMap((line) => {
    const [mode, type, id] = line.slice(0, line.indexOf('\t')).split(' ') as [string, string, string];
    const name = line.slice(line.indexOf('\t') + 1);
    return type === 'blob' && wanted.has(nameText(name)) ? [{ name, mode, id }] : [];
  });
  await writeCopies(checkout, join(folder, 'merged'), merged);
}

/**
 * Symlinks are kept as such, and come last: whatever the file system takes for the same name, no file is written through one.
 */
async function writeCopies(
  checkout: Checkout,
  folder: string,
  entries: readonly (TreeEntry & { readonly name: string })[],
): Promise<void> {
  const isLink = ({ mode }: TreeEntry) => mode === '120000';
  const ordered = [...entries.filter((entry) => !isLink(entry)), ...entries.filter(isLink)];
  await eachBlob(checkout, ordered, async ({ name, mode }, content) => {
    const path = Buffer.concat([Buffer.from(`${folder}/`), nameBytes(name)]);
    await mkdir(path.subarray(0, path.lastIndexOf(47)), { recursive: true });
    if (mode === '120000') await symlink(content, path);
    else await writeFile(path, content, { flag: 'wx' });
  });
}

function readme(
  checkout: Checkout,
  kept: { readonly ref: string; readonly folder: string; readonly conflicts: readonly PullConflict[] },
): string {
  const paths = kept.conflicts.map(({ path, reason }) => `  ${path} (${reason.replaceAll('_', ' ')})`).join('\n');
  const quoted = (path: string) => `'${path.replaceAll("'", `'\\''`)}'`;
  const first = kept.conflicts[0]?.path ?? '.';
  const commands =
    checkout.kind === 'git'
      ? `See what the sandbox changed:\n  git diff HEAD ${kept.ref}\nTake its version of a path:\n  git restore --source=${kept.ref} -- ${quoted(first)}\nThrow it away:\n  git update-ref -d ${kept.ref} && rm -r ${quoted(kept.folder)}\n`
      : `Take its version of a path:\n  cp -a ${quoted(join(kept.folder, 'sandbox', first))} ${quoted(join(checkout.root, first))}\nThrow it away:\n  rm -r ${quoted(kept.folder)}\n`;
  return `The sandbox and this checkout changed the same paths. Your files are as they were; nothing was applied.\n\n${paths}\n\nsandbox/ holds every file as the sandbox has it, merged/ what could be merged, with markers.\n\n${commands}`;
}
