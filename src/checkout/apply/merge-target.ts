/**
 * What a target becomes: the plan's result, merged three-way where the target moved. Only objects in our own repository are made.
 *
 * A branch that shares history with the workspace gets its commits: moved forward, or with a merge commit. Where there is no common commit, the
 * plan's base is the base of the merge, and the branch gets one commit with the message and author of the result. A directory is compared with
 * the plan's base at the paths that the plan changes; what else lies in it is nobody's concern.
 */

import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { hasRealParents } from '../sync/apply-step.ts';
import { type Checkout, shadowCall } from '../sync/checkout.ts';
import { diskPath, find } from '../sync/disk-entries.ts';
import { git, gitLine, nameBytes, nameText, zeroSeparated } from '../sync/git-process.ts';
import { emptyTree } from '../sync/local-snapshot.ts';
import { mergeTrees } from '../sync/pull-merge.ts';
import { changesBetween, type TreeChange } from '../sync/trees.ts';
import type { AppliedPlan, PlanTarget, TargetConflict } from './plan-target.ts';

export interface MergedTarget {
  readonly conflicts: readonly TargetConflict[];
  /** What the branch moves to; null: a directory, or nothing to do. */
  readonly commit: string | null;
  readonly changes: readonly TreeChange[];
  readonly insertions: number;
  readonly deletions: number;
}

const nothing = { conflicts: [], commit: null, changes: [], insertions: 0, deletions: 0 } as const;

export async function mergeIntoBranch(
  checkout: Checkout,
  target: PlanTarget,
  { head, plan }: { readonly head: string | null; readonly plan: AppliedPlan },
): Promise<MergedTarget> {
  const { commit, base } = target;
  if (head === null) return await merged(checkout, emptyTree, await treeOf(checkout, commit), commit);
  if (await isAncestor(checkout, commit, head)) return nothing;
  const ours = await treeOf(checkout, head);
  if (await isAncestor(checkout, head, commit))
    return await merged(checkout, ours, await treeOf(checkout, commit), commit);
  if (await isRelated(checkout, head, commit)) {
    const words = ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', head, commit];
    const { code, stdout } = await git(words, shadowCall(checkout, { accept: [1] }));
    const [tree, ...names] = zeroSeparated(stdout) as [string, ...string[]];
    if (code !== 0)
      return { ...nothing, conflicts: bothChanged([...new Set(names.filter((name) => name !== '').map(nameText))]) };
    if (tree === ours) return nothing;
    const message = `Merge the result of plan ${plan.planName} for ${target.workspace}\n\n${trailers(target, plan)}`;
    const made = await commitLike(checkout, { like: commit, tree, parents: [head, commit], message });
    return await merged(checkout, ours, tree, made);
  }
  const theirs = await treeOf(checkout, commit);
  const { tree, conflicts } = await mergeTrees(checkout, { base: await treeOf(checkout, base), ours, theirs });
  if (conflicts.length > 0) return { ...nothing, conflicts: bothChanged(conflicts.map(({ path }) => path)) };
  if (tree === ours) return nothing;
  const said = (await git(['log', '-1', '--format=%B', commit], shadowCall(checkout))).stdout
    .toString('utf8')
    .trimEnd();
  const message = `${said === '' ? `Result of plan ${plan.planName}` : said}\n\n${trailers(target, plan)}`;
  return await merged(
    checkout,
    ours,
    tree,
    await commitLike(checkout, { like: commit, tree, parents: [head], message }),
  );
}

export async function mergeIntoDirectory(checkout: Checkout, { base, commit }: PlanTarget): Promise<MergedTarget> {
  const [baseTree, theirs] = [await treeOf(checkout, base), await treeOf(checkout, commit)];
  const touched = await changesBetween(checkout, baseTree, theirs);
  const ours = await treeOnDisk(checkout, baseTree, touched);
  const { tree, conflicts } = await mergeTrees(checkout, { base: baseTree, ours, theirs });
  if (conflicts.length > 0) return { ...nothing, conflicts: bothChanged(conflicts.map(({ path }) => path)) };
  return await merged(checkout, ours, tree, null);
}

async function merged(checkout: Checkout, from: string, to: string, commit: string | null): Promise<MergedTarget> {
  const changes = await changesBetween(checkout, from, to);
  const words = ['diff-tree', '-r', '-z', '--numstat', '--no-renames', from, to];
  const { stdout } = await git(words, shadowCall(checkout));
  const lines = zeroSeparated(stdout).map((line) => line.split('\t'));
  const sum = (column: number) => lines.reduce((total, fields) => total + (Number(fields[column]) || 0), 0);
  return { conflicts: [], commit, changes, insertions: sum(0), deletions: sum(1) };
}

function treeOf(checkout: Checkout, commit: string): Promise<string> {
  return gitLine(['rev-parse', '--verify', '-q', `${commit}^{tree}`], shadowCall(checkout));
}

function bothChanged(paths: readonly string[]): TargetConflict[] {
  return paths.map((path) => ({ path, reason: 'both_changed' }));
}

async function isAncestor(checkout: Checkout, one: string, of: string): Promise<boolean> {
  return (await git(['merge-base', '--is-ancestor', one, of], shadowCall(checkout, { accept: [1] }))).code === 0;
}

async function isRelated(checkout: Checkout, one: string, other: string): Promise<boolean> {
  return (await git(['merge-base', one, other], shadowCall(checkout, { accept: [1] }))).code === 0;
}

function trailers({ workspaceId, commit }: PlanTarget, plan: AppliedPlan): string {
  return `Atoll-Plan: ${plan.planId}\nAtoll-Workspace: ${workspaceId}\nAtoll-Commit: ${commit}\n`;
}

/** With author and times of the result, so that the same merge has the same name. */
async function commitLike(
  checkout: Checkout,
  made: { readonly like: string; readonly tree: string; readonly parents: readonly string[]; readonly message: string },
): Promise<string> {
  const words = ['log', '-1', '--date=raw', '--format=%an%n%ae%n%ad', made.like];
  const [name = '', email = '', date = ''] = (await gitLine(words, shadowCall(checkout))).split('\n');
  const who = { name: name.trim() === '' ? 'atoll' : name, email: email.trim() === '' ? 'plan@atoll.invalid' : email };
  const env = {
    GIT_AUTHOR_NAME: who.name,
    GIT_AUTHOR_EMAIL: who.email,
    GIT_AUTHOR_DATE: date,
    GIT_COMMITTER_NAME: who.name,
    GIT_COMMITTER_EMAIL: who.email,
    GIT_COMMITTER_DATE: date,
  };
  const parents = made.parents.flatMap((parent) => ['-p', parent]);
  return await gitLine(
    ['commit-tree', ...parents, '-F', '-', made.tree],
    shadowCall(checkout, { env, stdin: made.message }),
  );
}

/** The base with what lies on disk at the touched paths. A directory in the place of a file is left to the check of obstacles. */
async function treeOnDisk(checkout: Checkout, baseTree: string, touched: readonly TreeChange[]): Promise<string> {
  if (touched.length === 0) return baseTree;
  const env = { GIT_INDEX_FILE: join(checkout.directory, 'disk-index') };
  await rm(env.GIT_INDEX_FILE, { force: true });
  const call = (stdin: Buffer) => shadowCall(checkout, { env, stdin });
  await git(['read-tree', baseTree], shadowCall(checkout, { env }));
  const names = touched.map(({ name }) => name);
  const removal = (name: string) =>
    Buffer.concat([Buffer.from(`0 ${'0'.repeat(40)}\t`), nameBytes(name), Buffer.of(0)]);
  await git(['update-index', '-z', '--index-info'], call(Buffer.concat(names.map(removal))));
  const present: Buffer[] = [];
  for (const name of names) {
    if (isPlainFile(checkout, name)) present.push(nameBytes(name), Buffer.of(0));
  }
  if (present.length > 0)
    await git(['update-index', '--add', '--replace', '-z', '--stdin'], call(Buffer.concat(present)));
  const tree = await gitLine(['write-tree'], shadowCall(checkout, { env }));
  await rm(env.GIT_INDEX_FILE, { force: true });
  return tree;
}

function isPlainFile(checkout: Checkout, name: string): boolean {
  const found = find(diskPath(checkout, name));
  return found !== undefined && hasRealParents(checkout, name) && (found.isFile() || found.isSymbolicLink());
}
