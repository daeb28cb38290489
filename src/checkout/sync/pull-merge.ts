/** The three-way merge of trees: what the sandbox made of the base, with what happened here since. Only objects are written. */
import { type Checkout, shadowCall } from './checkout.ts';
import { git, nameText, zeroSeparated } from './git-process.ts';
import { commitTree } from './local-snapshot.ts';

/** A path of which the two sides made different things. */
export interface PullConflict {
  readonly path: string;
  readonly reason: 'both_changed' | 'exists_here' | 'changed_meanwhile';
}

export interface MergedTree {
  /** With conflict markers where there are conflicts. */
  readonly tree: string;
  readonly conflicts: readonly PullConflict[];
}

export async function mergeTrees(
  checkout: Checkout,
  trees: { readonly base: string; readonly ours: string; readonly theirs: string },
): Promise<MergedTree> {
  const { base, ours, theirs } = trees;
  if (ours === base || ours === theirs) return { tree: theirs, conflicts: [] };
  if (theirs === base) return { tree: ours, conflicts: [] };
  // merge-tree finds the base as the common ancestor, so the three trees become a small history.
  const root = await commitTree(checkout, base, []);
  const [left, right] = await Promise.all([commitTree(checkout, ours, [root]), commitTree(checkout, theirs, [root])]);
  const call = shadowCall(checkout, { accept: [1] });
  const { code, stdout } = await git(
    ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', left, right],
    call,
  );
  const [tree, ...names] = zeroSeparated(stdout) as [string, ...string[]];
  if (code === 0) return { tree, conflicts: [] };
  const paths = [...new Set(names.filter((name) => name !== '').map(nameText))];
  return { tree, conflicts: paths.map((path) => ({ path, reason: 'both_changed' })) };
}
