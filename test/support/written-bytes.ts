/**
 * What a schedule of plans has written, and where it has to be found again. Every path but the shared one is written once, by one sandbox in one
 * workspace: nothing has a reason to change or remove it but a rollback of its plan.
 */
import { expect } from 'vitest';
import type { GitObjectId, PlanCommitView, SandboxId, WorkspaceId } from '../../src/protocol/index.ts';
import type { PlanModel } from './plan-model.ts';

/** What every workspace begins with. */
export const sharedPath = 'shared';
export const firstTree = { [sharedPath]: 'base' };

interface Write {
  readonly box: SandboxId;
  readonly target: WorkspaceId;
  readonly path: string;
  readonly text: string;
  /** What happens in one batch happens at once, in whatever order. */
  readonly batch: number;
}

export interface AskedCommit {
  readonly batch: number;
  readonly view: PlanCommitView;
}

export class WrittenBytes {
  readonly #model: PlanModel;
  readonly #writes: Write[] = [];
  /** Batches in which a rollback was asked for, by sandbox. */
  readonly #rollbacks = new Map<SandboxId, number[]>();
  /** How many texts were looked for and found where they belong. */
  found = 0;

  constructor(model: PlanModel) {
    this.#model = model;
  }

  write(write: Write): void {
    const files = this.#model.files.get(`${write.box} ${write.target}`);
    if (files === undefined) return;
    files.set(write.path, write.text);
    this.#writes.push(write);
  }

  rollbackAsked(boxes: readonly SandboxId[], batch: number): void {
    for (const box of boxes) this.#rollbacks.set(box, [...(this.#rollbacks.get(box) ?? []), batch]);
  }

  /** A sandbox has what was last written there, whatever became of its plan, unless a rollback was asked for. */
  checkSandboxes(): void {
    const last = new Map(this.#writes.map((write) => [`${write.box} ${write.target} ${write.path}`, write]));
    for (const write of last.values()) {
      if (this.#wasRolledBack(write, { until: Number.POSITIVE_INFINITY })) continue;
      this.#expectIn(this.#model.filesOf(write.box, write.target), write, 'a sandbox keeps what was written in it');
    }
  }

  /** A version holds what was written for its workspace and nothing else. */
  checkVersions(target: WorkspaceId, commits: readonly GitObjectId[]): void {
    const known = new Set(
      this.#writes.filter((one) => one.target === target).map(({ path, text }) => `${path} ${text}`),
    );
    for (const [path, text] of Object.entries(firstTree)) known.add(`${path} ${text}`);
    for (const commit of commits) {
      const strange = [...this.#model.treeOfCommit(commit)].filter(([path, text]) => !known.has(`${path} ${text}`));
      expect(strange, 'nobody wrote this there').toEqual([]);
    }
  }

  /** What members had before a commit was asked for is in the version that it published, and in every later one. */
  checkCommit(
    { view, batch }: AskedCommit,
    versionsSince: (target: WorkspaceId, number: number) => GitObjectId[],
  ): void {
    const members = new Set(view.members.filter(({ error }) => error === null).map(({ sandboxId }) => sandboxId));
    for (const { workspaceId, after } of view.targets) {
      if (after === null) continue;
      for (const write of this.#writes) {
        const isIn = write.target === workspaceId && write.batch < batch && members.has(write.box);
        if (!isIn || write.path === sharedPath || this.#wasRolledBack(write, { until: batch })) continue;
        for (const commit of versionsSince(workspaceId, after.number)) {
          this.#expectIn(this.#model.treeOfCommit(commit), write, `${view.id} has what its member wrote`);
        }
      }
    }
  }

  /** After a rollback a member has what its base has of what was written before it was first asked for. */
  checkRolledBack(member: {
    readonly sandboxId: SandboxId;
    baseOf(target: WorkspaceId): GitObjectId | undefined;
  }): void {
    const askedAt = Math.min(...(this.#rollbacks.get(member.sandboxId) ?? []));
    for (const write of this.#writes) {
      const base = write.box === member.sandboxId ? member.baseOf(write.target) : undefined;
      if (base === undefined || write.path === sharedPath || write.batch >= askedAt) continue;
      const now = this.#model.filesOf(write.box, write.target).get(write.path);
      expect(now, `${write.path} is as in the base`).toBe(this.#model.treeOfCommit(base).get(write.path));
      this.found++;
    }
  }

  #wasRolledBack({ box, batch }: Write, { until }: { readonly until: number }): boolean {
    return (this.#rollbacks.get(box) ?? []).some((asked) => asked >= batch && asked <= until);
  }

  #expectIn(tree: ReadonlyMap<string, string>, { path, text }: Write, what: string): void {
    expect(tree.get(path), `${what}: ${path}`).toBe(text);
    this.found++;
  }
}
