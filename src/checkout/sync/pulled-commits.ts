/** Commits that were made in the sandbox: which they are, and whether the local branch can simply move to them. */
import { type BranchMove, commitsRef, refuseLockedIndex, setRef } from './branch-move.ts';
import { type Checkout, shadowCall } from './checkout.ts';
import { git } from './git-process.ts';
import { emptyTree, type Snapshot } from './local-snapshot.ts';
import type { PullResult } from './options.ts';
import { giveToUser } from './packs.ts';
import type { Arrived } from './pull.ts';
import { mergeTrees } from './pull-merge.ts';
import type { SyncRecord } from './records.ts';

/** Told at most; all of them come. */
const toldCommits = 1_000;

export interface CommitPlan {
  readonly commits: PullResult['commits'];
  readonly move: BranchMove | null;
  /** Where they lie when the branch cannot move. */
  readonly ref: string | null;
}

interface Given {
  readonly snapshot: Snapshot;
  readonly arrived: Arrived;
  readonly record: SyncRecord | undefined;
  readonly canMove: boolean;
  /** Only tells which there are. */
  readonly isDry: boolean;
}

export async function planCommits(
  checkout: Checkout,
  { snapshot, arrived, record, canMove, isDry }: Given,
): Promise<CommitPlan> {
  const none = { commits: [], move: null, ref: null };
  const { head } = arrived;
  if (checkout.kind === 'plain' || head === null || head === snapshot.head) return none;
  if (record !== undefined && head === record.seenHead) return none;
  const known = [snapshot.head, record?.head].filter((id) => id != null);
  const commits = await listCommits(checkout, head, known);
  if (commits.length === 0) return none; // Moved back to a commit that is here already: the files tell the rest.
  if (isDry) return { ...none, commits };
  await giveToUser(checkout, [head, ...(arrived.indexTree === null ? [] : [arrived.indexTree])], known);
  const move = canMove ? await forwardMove(checkout, { snapshot, arrived, record, head }) : null;
  if (move !== null) return { commits, move, ref: null };
  const ref = commitsRef(head);
  await setRef(checkout, ref, head);
  return { commits, move: null, ref };
}

async function forwardMove(
  checkout: Checkout,
  { snapshot, arrived, record, head }: Omit<Given, 'canMove' | 'isDry'> & { readonly head: string },
): Promise<BranchMove | null> {
  if (arrived.branch !== snapshot.branch || arrived.indexTree === null || snapshot.indexTree === null) return null;
  if (snapshot.head !== null) {
    const words = ['merge-base', '--is-ancestor', snapshot.head, head];
    const { code } = await git(words, shadowCall(checkout, { accept: [1] }));
    if (code !== 0) return null;
  }
  const base = record?.indexTree ?? snapshot.indexTree;
  const staged = await mergeTrees(checkout, { base, ours: snapshot.indexTree, theirs: arrived.indexTree });
  if (staged.conflicts.length > 0) return null;
  await refuseLockedIndex(checkout);
  if (staged.tree !== arrived.indexTree && staged.tree !== emptyTree) await giveToUser(checkout, [staged.tree], [head]);
  return { ref: snapshot.branch, from: snapshot.head, to: head, indexFrom: snapshot.indexTree, indexTo: staged.tree };
}

async function listCommits(checkout: Checkout, head: string, known: readonly string[]): Promise<PullResult['commits']> {
  const words = [
    'log',
    '-z',
    '--reverse',
    '--topo-order',
    `--max-count=${toldCommits}`,
    '--format=%H%x09%an <%ae>%x09%s',
    head,
  ];
  const { stdout } = await git([...words, ...known.map((id) => `^${id}`)], shadowCall(checkout));
  return stdout
    .toString('utf8')
    .split('\0')
    .filter((line) => line !== '')
    .map((line) => {
      const [id, author, ...subject] = line.split('\t');
      return { id: id ?? '', author: author ?? '', subject: subject.join('\t') };
    });
}
