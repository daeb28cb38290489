/**
 * Workspaces as plans see them, in memory: trees are maps from paths to texts, commits are numbered, the merge is three-way by path. What decides
 * and what is recorded is as with the real one: heads, versions and attachments are in the store, and publishing compares and sets there. It
 * stands for the node too, so it outlives a crash of the server, and refuses who does not bring the token of a lease that is held.
 */

import type { CheckOutcome, CheckRequest, DropRequest, PlanWork } from '../../src/control/plans/plan-work.ts';
import type {
  CollectRequest,
  CombineConflict,
  Combined,
  CombineRequest,
  Contribution,
  PublishRequest,
  WorkspaceChanges,
} from '../../src/control/workspaces/workspace-changes.ts';
import {
  type GitObjectId,
  newId,
  PlatformError,
  type SandboxId,
  type TeamId,
  type WorkspaceId,
} from '../../src/protocol/index.ts';
import type { AttachmentRecord, Store, Tables, WorkspaceVersionRecord } from '../../src/store/index.ts';
import type { FakeNode } from './fake-node.ts';

export type Tree = ReadonlyMap<string, string>;

interface Commit {
  readonly tree: GitObjectId;
  readonly parents: readonly GitObjectId[];
}

type Step = 'collect' | 'combine' | 'publish' | 'release' | 'drop' | 'checks';

export class PlanModel implements PlanWork, WorkspaceChanges {
  readonly changes: WorkspaceChanges = this;
  readonly trees = new Map<GitObjectId, Tree>();
  readonly commits = new Map<GitObjectId, Commit>();
  /** What sandboxes have, by sandbox and workspace. */
  readonly files = new Map<string, Map<string, string>>();
  /** Names that hold something, by workspace. */
  readonly holds = new Map<WorkspaceId, Set<string>>();
  /** Called when a step begins, and may wait or fail. */
  onStep: (step: Step, about: string, signal?: AbortSignal) => Promise<void> = async () => {};
  check: (request: CheckRequest) => Promise<readonly CheckOutcome[]> = async () => [];
  readonly #store: Store;
  readonly #node: FakeNode;
  readonly #ids = new Map<string, GitObjectId>();

  constructor(store: Store, node: FakeNode) {
    this.#store = store;
    this.#node = node;
  }

  // ---- for tests

  async createWorkspace(team: { teamId: TeamId; keyId: never }, name: string, tree: Record<string, string>) {
    const id = newId('workspace');
    const commit = this.#commit(new Map(Object.entries(tree)), []);
    const atMs = 1_900_000_000_000;
    await this.#store.transact(async ({ workspaces }) => {
      await workspaces.insert({
        ...{ id, teamId: team.teamId, nodeId: this.#node.nodeId, name, state: 'ready', headNumber: 1 },
        ...{ headCommit: commit, version: 1, createdAtMs: atMs, createdBy: team.keyId, updatedAtMs: atMs },
      });
      await workspaces.insertVersion({
        ...{ workspaceId: id, number: 1, commit, kind: 'import', summary: 'first', author: 'test' },
        ...{ sandboxId: null, planId: null, createdAtMs: atMs, createdBy: team.keyId },
      });
    });
    return id;
  }

  async attach(sandboxId: SandboxId, workspaceId: WorkspaceId, path = `/workspace/${workspaceId}`): Promise<void> {
    await this.#store.transact(async ({ workspaces }) => {
      const workspace = (await workspaces.find(workspaceId))!;
      await workspaces.putAttachment({
        ...{ sandboxId, workspaceId, teamId: workspace.teamId, path, baseNumber: workspace.headNumber },
        ...{ baseCommit: workspace.headCommit!, baseline: null, attachedAtMs: 0, attachedBy: workspace.createdBy },
      });
    });
    const { headCommit } = (await this.workspace(workspaceId))!;
    this.files.set(placeOf(sandboxId, workspaceId), new Map(this.treeOfCommit(headCommit!)));
  }

  workspace(id: WorkspaceId) {
    return this.#store.read(({ workspaces }) => workspaces.find(id));
  }

  filesOf(sandboxId: SandboxId, workspaceId: WorkspaceId): Map<string, string> {
    return this.files.get(placeOf(sandboxId, workspaceId))!;
  }

  treeOfCommit(commit: GitObjectId): Tree {
    return this.trees.get(this.commits.get(commit)!.tree)!;
  }

  async head(id: WorkspaceId): Promise<Record<string, string>> {
    return Object.fromEntries(this.treeOfCommit((await this.workspace(id))!.headCommit!));
  }

  // ---- what plans ask

  async collect(request: CollectRequest, signal?: AbortSignal): Promise<readonly Contribution[]> {
    await this.onStep('collect', request.sandboxId, signal);
    signal?.throwIfAborted();
    this.#admit(request.sandboxId, request.leaseToken);
    const attachments = await this.#store.read(({ workspaces }) => workspaces.attachmentsOf(request.sandboxId));
    return attachments.map((attachment) => {
      const { workspaceId } = attachment;
      const files = this.files.get(placeOf(request.sandboxId, workspaceId));
      if (files === undefined) throw new PlatformError('file_not_found', `${attachment.path} is gone.`);
      this.#hold(workspaceId, request.hold);
      const counts = countsOf(this.treeOfCommit(attachment.baseCommit), files);
      return { attachment, tree: this.#tree(files), counts, leftOut: [] };
    });
  }

  async combine(request: CombineRequest, signal?: AbortSignal): Promise<Combined> {
    const { workspaceId, contributions } = request;
    await this.onStep('combine', workspaceId, signal);
    signal?.throwIfAborted();
    const workspace = (await this.workspace(workspaceId))!;
    const onCommit = workspace.headCommit!;
    const on = { onNumber: workspace.headNumber, onCommit };
    const changed = contributions.filter(({ counts }) => counts.files > 0);
    if (changed.length === 0) return { kind: 'nothing', ...on };
    const head = this.treeOfCommit(onCommit);
    let merged = head;
    const conflicts: CombineConflict[] = [];
    const origins = new Map<string, SandboxId>();
    const bases: { attachment: AttachmentRecord; commit: GitObjectId }[] = [];
    for (const { attachment, tree } of changed) {
      const theirs = this.trees.get(tree)!;
      const result = merge(this.treeOfCommit(attachment.baseCommit), merged, theirs);
      for (const path of result.conflicts) {
        const sides = { base: null, ours: null, theirs: null };
        const withSandboxId = origins.get(path) ?? null;
        conflicts.push({ path, kind: 'content', ...sides, sandboxId: attachment.sandboxId, withSandboxId });
      }
      for (const path of result.taken) origins.set(path, attachment.sandboxId);
      merged = result.tree;
      bases.push({ attachment, commit: this.#commit(theirs, [attachment.baseCommit]) });
    }
    if (conflicts.length > 0) return { kind: 'conflicts', onNumber: on.onNumber, conflicts };
    this.#hold(workspaceId, request.hold);
    const parents = [onCommit, ...bases.map(({ commit }) => commit)];
    const commit = this.#commit(merged, parents);
    const { author, message: summary } = request;
    const version = { workspaceId, ...on, commit, tree: this.commits.get(commit)!.tree, author, summary, bases };
    return { kind: 'prepared', version: { ...version, kind: 'merge', counts: countsOf(head, merged) } };
  }

  async publish(tables: Tables, request: PublishRequest): Promise<WorkspaceVersionRecord> {
    const { version, createdBy, sandboxId, planId, atMs } = request;
    const workspace = await tables.workspaces.find(version.workspaceId);
    if (workspace === undefined || workspace.headNumber !== version.onNumber) {
      throw new PlatformError('workspace_moved', `${version.workspaceId} has a newer version.`);
    }
    const number = version.onNumber + 1;
    const { workspaceId, commit, kind, summary } = version;
    const record: WorkspaceVersionRecord = {
      ...{ workspaceId, number, commit, kind, summary, author: version.author.name, sandboxId, planId },
      ...{ createdAtMs: atMs, createdBy },
    };
    await tables.workspaces.insertVersion(record);
    await tables.workspaces.update({
      ...{ ...workspace, headNumber: number, headCommit: commit, version: workspace.version + 1, updatedAtMs: atMs },
    });
    for (const { attachment, commit: baseCommit } of version.bases) {
      await tables.workspaces.putAttachment({ ...attachment, baseNumber: number, baseCommit });
    }
    return record;
  }

  async release({ workspaceId, hold }: { workspaceId: WorkspaceId; hold: string }): Promise<void> {
    await this.onStep('release', workspaceId);
    this.holds.get(workspaceId)?.delete(hold);
  }

  async drop({ sandboxId, leaseToken }: DropRequest, signal: AbortSignal): Promise<void> {
    await this.onStep('drop', sandboxId, signal);
    this.#admit(sandboxId, leaseToken);
    const attachments = await this.#store.read(({ workspaces }) => workspaces.attachmentsOf(sandboxId));
    for (const { workspaceId, baseCommit } of attachments) {
      this.files.set(placeOf(sandboxId, workspaceId), new Map(this.treeOfCommit(baseCommit)));
    }
  }

  async treeOf({ commit }: { workspaceId: WorkspaceId; commit: GitObjectId }): Promise<GitObjectId> {
    return this.commits.get(commit)!.tree;
  }

  async runChecks(request: CheckRequest, signal: AbortSignal): Promise<readonly CheckOutcome[]> {
    await this.onStep('checks', request.commitId, signal);
    return await this.check(request);
  }

  // ---- inside

  /** As the node does it. */
  #admit(sandboxId: SandboxId, leaseToken: number | null): void {
    const sandbox = this.#node.sandboxes.get(sandboxId);
    if (sandbox === undefined) throw new PlatformError('sandbox_not_found', `There is no ${sandboxId}.`);
    const { settings } = sandbox;
    if (settings.leaseHeld && settings.leaseToken !== leaseToken) {
      throw new PlatformError('lease_held', `A lease on ${sandboxId} is held.`);
    }
  }

  #hold(workspaceId: WorkspaceId, name: string): void {
    const names = this.holds.get(workspaceId) ?? new Set();
    this.holds.set(workspaceId, names.add(name));
  }

  #tree(tree: Tree): GitObjectId {
    const text = JSON.stringify([...tree].sort());
    const id = this.#id(text);
    this.trees.set(id, new Map(tree));
    return id;
  }

  #commit(tree: Tree, parents: readonly GitObjectId[]): GitObjectId {
    const treeId = this.#tree(tree);
    const id = this.#id(`${treeId} ${parents.join(' ')}`);
    this.commits.set(id, { tree: treeId, parents });
    return id;
  }

  /** The same for the same content, as git's are. */
  #id(text: string): GitObjectId {
    const id = this.#ids.get(text) ?? (this.#ids.size + 1).toString(16).padStart(40, '0');
    this.#ids.set(text, id);
    return id;
  }
}

function placeOf(sandboxId: SandboxId, workspaceId: WorkspaceId): string {
  return `${sandboxId} ${workspaceId}`;
}

function merge(base: Tree, ours: Tree, theirs: Tree): { tree: Tree; conflicts: string[]; taken: string[] } {
  const tree = new Map(ours);
  const conflicts: string[] = [];
  const taken: string[] = [];
  for (const path of new Set([...base.keys(), ...ours.keys(), ...theirs.keys()])) {
    const [was, mine, other] = [base.get(path), ours.get(path), theirs.get(path)];
    if (other === was || other === mine) continue;
    if (mine !== was) conflicts.push(path);
    else if (other === undefined) tree.delete(path);
    else tree.set(path, other);
    taken.push(path);
  }
  return { tree, conflicts, taken };
}

function countsOf(before: Tree, after: Tree): { files: number; insertions: number; deletions: number } {
  const paths = [...new Set([...before.keys(), ...after.keys()])].filter(
    (path) => before.get(path) !== after.get(path),
  );
  return {
    files: paths.length,
    insertions: paths.filter((path) => after.has(path)).length,
    deletions: paths.filter((path) => before.has(path)).length,
  };
}
