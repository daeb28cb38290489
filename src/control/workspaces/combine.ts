/**
 * From contributions to one commit on the head. A sandbox whose checkout stands on the head adds one commit. Any other has a commit of its own,
 * with exactly its files, on what it stands on, and a merge of that; so what a sandbox had at that instant is in the history as it was, and is what
 * the sandbox stands on from then on.
 */
import {
  type GitObjectId,
  isId,
  type NodeWorkspaces,
  type SandboxId,
  type WorkspaceConflict,
} from '../../protocol/index.ts';
import type { CombineConflict, Combined, CombineRequest, Contribution } from './workspace-changes.ts';
import type { ReadyWorkspace } from './workspace-directory.ts';

interface Tip {
  readonly commit: GitObjectId;
  readonly tree: GitObjectId;
}

/** Paths of one contribution that are looked at to tell who is in its way. */
const pathsMax = 10_000;

export async function combineContributions(
  home: NodeWorkspaces,
  workspace: ReadyWorkspace,
  request: CombineRequest,
  signal?: AbortSignal,
): Promise<Combined> {
  const { id: workspaceId, headNumber: onNumber, headCommit: onCommit } = workspace;
  const changed = request.contributions.filter(({ counts }) => counts.files > 0);
  if (changed.length === 0) return { kind: 'nothing', onNumber, onCommit };
  const head: Tip = { commit: onCommit, tree: (await home.getCommit({ workspaceId, commit: onCommit })).tree };
  let tip = head;
  const merged: Contribution[] = [];
  const bases: { attachment: Contribution['attachment']; commit: GitObjectId }[] = [];
  const conflicts: CombineConflict[] = [];
  let isMerge = false;
  for (const contribution of changed) {
    const { attachment, tree } = contribution;
    const base = attachment.baseCommit;
    const own = await commitOf(home, request, { tree, parents: [base], sandboxId: attachment.sandboxId });
    if (base === tip.commit) {
      tip = { commit: own, tree };
    } else {
      const outcome = await home.merge({ workspaceId, base, ours: tip.tree, theirs: tree }, signal);
      if (outcome.kind === 'conflicts') {
        const found = { conflicts: outcome.conflicts, contribution, earlier: merged, isOnHead: tip === head };
        conflicts.push(...(await whoseConflicts(home, { workspaceId, head, ...found }, signal)));
        continue; // The rest is looked at too: all conflicts are told at once.
      }
      isMerge = true;
      const parents = [tip.commit, own];
      const commit = await commitOf(home, request, { tree: outcome.tree, parents, sandboxId: attachment.sandboxId });
      tip = { commit, tree: outcome.tree };
    }
    merged.push(contribution);
    bases.push({ attachment, commit: own });
  }
  if (conflicts.length > 0) return { kind: 'conflicts', onNumber, conflicts };
  const { counts } = await home.diff({ workspaceId, from: head.tree, to: tip.tree, limit: 1 });
  return {
    kind: 'prepared',
    version: {
      ...{ workspaceId, onNumber, onCommit, commit: tip.commit, tree: tip.tree, counts, bases },
      kind: isMerge ? 'merge' : 'commit',
      summary: summaryOf(request.message),
      author: request.author,
    },
  };
}

export function summaryOf(message: string): string {
  return (message.split('\n', 1)[0] ?? '').slice(0, 500);
}

async function commitOf(
  home: NodeWorkspaces,
  { workspaceId, author, message, atMs, trailers }: CombineRequest,
  what: { readonly tree: GitObjectId; readonly parents: readonly GitObjectId[]; readonly sandboxId: SandboxId },
): Promise<GitObjectId> {
  const { tree, parents, sandboxId } = what;
  // What takes a plan back is nobody's files.
  const named = isId('sandbox', sandboxId) ? [...trailers, { name: 'Atoll-Sandbox', value: sandboxId }] : trailers;
  const made = await home.commitTree({ workspaceId, tree, parents, author, atMs, message, trailers: named });
  return made.commit;
}

/** Whom each conflict is with: the head, where the same conflict is there without the others, or the last of them that changed the path. */
async function whoseConflicts(
  home: NodeWorkspaces,
  found: {
    readonly workspaceId: CombineRequest['workspaceId'];
    readonly head: Tip;
    readonly conflicts: readonly WorkspaceConflict[];
    readonly contribution: Contribution;
    readonly earlier: readonly Contribution[];
    readonly isOnHead: boolean;
  },
  signal?: AbortSignal,
): Promise<CombineConflict[]> {
  const { workspaceId, head, contribution, earlier, conflicts, isOnHead } = found;
  const { sandboxId, baseCommit: base } = contribution.attachment;
  const withHead = new Set<string>();
  const changedBy: { sandboxId: SandboxId; paths: ReadonlySet<string> }[] = [];
  if (!isOnHead) {
    const outcome = await home.merge({ workspaceId, base, ours: head.tree, theirs: contribution.tree }, signal);
    if (outcome.kind === 'conflicts') for (const { path } of outcome.conflicts) withHead.add(path);
    for (const { attachment, tree } of earlier.toReversed()) {
      const { files } = await home.diff({ workspaceId, from: attachment.baseCommit, to: tree, limit: pathsMax });
      const paths = new Set(files.flatMap(({ path, from }) => (from === null ? [path] : [path, from])));
      changedBy.push({ sandboxId: attachment.sandboxId, paths });
    }
  }
  return conflicts.map((conflict) => {
    const isWithHead = isOnHead || withHead.has(conflict.path);
    const other = changedBy.find(({ paths }) => paths.has(conflict.path)) ?? changedBy[0];
    return { ...conflict, sandboxId, withSandboxId: isWithHead ? null : (other?.sandboxId ?? null) };
  });
}
