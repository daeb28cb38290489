/**
 * The steps from a sandbox's files to a version (see workspace-changes.ts), and what keeps their objects.
 *
 * Invariant: a commit that a version is made of is held at every moment: under the caller's hold until that is released, which puts the version's
 * own hold in its place first. What a crash leaves between the two is finished by `WorkspaceRecovery`.
 */
import { AtMost } from '../../base/index.ts';
import { type NodeWorkspaces, newId, PlatformError, type SandboxId, type WorkspaceId } from '../../protocol/index.ts';
import type {
  AttachmentRecord,
  CheckpointAttachment,
  CheckpointRecord,
  SandboxRecord,
  Tables,
  WorkspaceVersionRecord,
} from '../../store/index.ts';
import type { Checkpoints } from '../checkpoints.ts';
import type { ControlContext } from '../context.ts';
import { type HiddenSandboxes, quietCopyOf } from '../hidden-sandboxes.ts';
import { combineContributions } from './combine.ts';
import type {
  CollectRequest,
  Combined,
  CombineRequest,
  Contribution,
  PreparedVersion,
  PublishRequest,
  WorkspaceChanges,
} from './workspace-changes.ts';
import {
  changeWorkspace,
  notAttached,
  requireReady,
  tellWorkspace,
  type WorkspaceDirectory,
} from './workspace-directory.ts';

/** How long a checkpoint that a crash leaves is kept. */
const leftOverMs = 10 * 60_000;
/** Attachments of one sandbox that are read at a time. */
const collectedAtOnce = 4;

interface ChangesParts {
  readonly directory: WorkspaceDirectory;
  readonly checkpoints: Checkpoints;
  readonly hidden: HiddenSandboxes;
}

export class SandboxChanges implements WorkspaceChanges {
  readonly #context: ControlContext;
  readonly #parts: ChangesParts;
  /** Holds that this server works under: not left over. */
  readonly #claimed = new Set<string>();

  constructor(context: ControlContext, parts: ChangesParts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** Until it is released. */
  claim(hold: string): void {
    this.#claimed.add(hold);
  }

  isClaimed(hold: string): boolean {
    return this.#claimed.has(hold);
  }

  async collect(request: CollectRequest, signal?: AbortSignal): Promise<readonly Contribution[]> {
    const contributions = await this.look(request, signal);
    for (const { attachment, tree } of contributions) {
      const { workspaceId, sandboxId } = attachment;
      const name = `${request.hold}/tree/${sandboxId}`;
      await this.#homeOf(workspaceId, (home) => home.hold({ workspaceId, name, object: tree }));
    }
    return contributions;
  }

  /** The same without a hold: what comes of it is there for a while, long enough to be looked at. */
  async look(request: Omit<CollectRequest, 'hold'>, signal?: AbortSignal): Promise<readonly Contribution[]> {
    await this.#checkAttached(request);
    return await this.#copied(request, (checkpoint, copy) => this.#read(checkpoint, copy, request, signal));
  }

  /** A copy of the sandbox's files as of one instant, in which nothing moves. Both are gone when this answers, or by the next reconcile. */
  async #copied<Result>(
    request: Omit<CollectRequest, 'hold'>,
    work: (checkpoint: CheckpointRecord, copy: SandboxRecord) => Promise<Result>,
  ): Promise<Result> {
    const { teamId, sandboxId, leaseToken, createdBy } = request;
    const { checkpoints, hidden } = this.#parts;
    const { clock, faults, random } = this.#context;
    const checkpoint = await checkpoints.takeOf({ teamId }, sandboxId, leaseToken === null ? {} : { leaseToken }, {
      ...{ id: newId('checkpoint', random), name: null, isHidden: true, leaseToken, createdBy },
      expiresAtMs: clock.nowMs() + leftOverMs,
    });
    try {
      await faults.hit('after-collect-checkpoint');
      return await hidden.run(quietCopyOf(checkpoint), (copy) => work(checkpoint, copy));
    } finally {
      await checkpoints.remove(checkpoint.id).catch((error: unknown) => {
        this.#context.logger.warn('a hidden checkpoint could not be removed yet', { id: checkpoint.id, error });
      });
    }
  }

  /** Whether a sandbox has exactly the files of the attachment's base at its path, whatever is recorded. */
  async isUntouched(sandbox: SandboxRecord, attachment: AttachmentRecord, leaseToken: number | null): Promise<boolean> {
    const { workspaceId, path, baseCommit: base, attachedBy: createdBy } = attachment;
    const request = { teamId: sandbox.teamId, sandboxId: sandbox.id, leaseToken, createdBy };
    return await this.#copied(request, async (checkpoint, copy) => {
      const life = { sandboxId: copy.id, generation: 1 };
      const { counts } = await this.#context.nodes.call(checkpoint.nodeId, (node) =>
        node.workspaces.collect({ workspaceId, life, path, base, baseline: null }),
      );
      return counts.files === 0;
    });
  }

  async #checkAttached({ sandboxId, workspaceIds }: Pick<CollectRequest, 'sandboxId' | 'workspaceIds'>): Promise<void> {
    const attachments = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(sandboxId));
    const missing = (workspaceIds ?? []).find((id) => !attachments.some(({ workspaceId }) => workspaceId === id));
    if (missing !== undefined) throw notAttached(missing, sandboxId);
    if (attachments.length === 0) throw notAttached('', sandboxId);
  }

  async #read(
    checkpoint: CheckpointRecord,
    copy: SandboxRecord,
    { sandboxId, workspaceIds }: Omit<CollectRequest, 'hold'>,
    signal: AbortSignal | undefined,
  ): Promise<readonly Contribution[]> {
    // The attachments are those of the instant of the files.
    const wanted = checkpoint.attachments.filter(
      ({ workspaceId }) => workspaceIds === undefined || workspaceIds.includes(workspaceId),
    );
    const few = new AtMost(collectedAtOnce);
    return await Promise.all(
      wanted.map((kept) => few.run(() => this.#collectOne(checkpoint, { kept, sandboxId, copyId: copy.id }, signal))),
    );
  }

  async #collectOne(
    checkpoint: CheckpointRecord,
    what: { readonly kept: CheckpointAttachment; readonly sandboxId: SandboxId; readonly copyId: SandboxId },
    signal: AbortSignal | undefined,
  ): Promise<Contribution> {
    const { workspaceId, path, baseCommit: base, baseline } = what.kept;
    const life = { sandboxId: what.copyId, generation: 1 };
    const collected = await this.#context.nodes.call(checkpoint.nodeId, (node) =>
      node.workspaces.collect({ workspaceId, life, path, base, baseline }, signal),
    );
    const attachment = await this.#attachmentOf(what.sandboxId, what.kept);
    return { attachment, ...collected };
  }

  /** As it is recorded, with the base that the files had at that instant. */
  async #attachmentOf(sandboxId: SandboxId, kept: CheckpointAttachment): Promise<AttachmentRecord> {
    const all = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(sandboxId));
    const found = all.find(({ workspaceId }) => workspaceId === kept.workspaceId);
    if (found === undefined) throw notAttached(kept.workspaceId, sandboxId);
    return { ...found, ...kept };
  }

  async combine(request: CombineRequest, signal?: AbortSignal): Promise<Combined> {
    const { workspaceId, hold } = request;
    const found = await this.#context.store.read((tables) => tables.workspaces.find(workspaceId));
    if (found === undefined) throw new PlatformError('workspace_not_found', `There is no workspace ${workspaceId}.`);
    const workspace = requireReady(found);
    return await this.#parts.directory.home(workspace, async (home) => {
      const combined = await combineContributions(home, workspace, request, signal);
      if (combined.kind === 'prepared') {
        const { commit } = combined.version;
        await home.hold({ workspaceId, name: `${hold}/commit/${commit}`, object: commit });
        await this.#context.faults.hit('after-version-held');
      }
      return combined;
    });
  }

  async publish(tables: Tables, request: PublishRequest): Promise<WorkspaceVersionRecord> {
    const { version: prepared, createdBy, sandboxId, planId, atMs } = request;
    const workspace = await tables.workspaces.find(prepared.workspaceId);
    if (workspace === undefined) {
      throw new PlatformError('workspace_not_found', `There is no workspace ${prepared.workspaceId} any more.`);
    }
    const record = await addVersion(tables, {
      workspaceId: prepared.workspaceId,
      onNumber: prepared.onNumber,
      version: {
        ...{ commit: prepared.commit, kind: prepared.kind, summary: prepared.summary, sandboxId, planId, createdBy },
        author: authorText(prepared.author),
        createdAtMs: atMs,
      },
      operationId: request.operationId ?? null,
    });
    for (const moved of prepared.bases) await moveBase(tables, moved, record.number);
    return record;
  }

  async release(key: { readonly workspaceId: WorkspaceId; readonly hold: string }): Promise<void> {
    try {
      await this.#release(key);
    } finally {
      this.#claimed.delete(key.hold);
    }
  }

  async #release({ workspaceId, hold }: Parameters<WorkspaceChanges['release']>[0]): Promise<void> {
    const { store } = this.#context;
    const workspace = await store.read((tables) => tables.workspaces.find(workspaceId));
    if (workspace === undefined) return;
    await this.#parts.directory.home(workspace, async (home) => {
      const holds = await home.holds({ workspaceId });
      const ours = holds.filter(({ name }) => name === hold || name.startsWith(`${hold}/`));
      if (ours.length === 0) return;
      const objects = new Set(ours.map(({ object }) => object));
      const known = new Set(holds.map(({ name }) => name));
      for (const version of await this.#versionsOf(workspaceId, objects)) {
        const name = versionHold(version.number);
        if (!known.has(name)) await home.hold({ workspaceId, name, object: version.commit });
      }
      await this.#context.faults.hit('before-release-holds');
      await home.release({ workspaceId, names: ours.map(({ name }) => name) });
    });
  }

  /** Versions that are made of these, among the newest: a hold is released soon after what it was for. */
  async #versionsOf(workspaceId: WorkspaceId, objects: ReadonlySet<string>): Promise<WorkspaceVersionRecord[]> {
    const found: WorkspaceVersionRecord[] = [];
    for (let before: number | undefined; ; ) {
      const limits = { limit: 1_000, ...(before !== undefined && { before }) };
      const page = await this.#context.store.read((tables) => tables.workspaces.versions(workspaceId, limits));
      found.push(...page.filter(({ commit }) => objects.has(commit)));
      if (page.length < limits.limit) return found;
      before = page.at(-1)?.number;
    }
  }

  async #homeOf<Result>(workspaceId: WorkspaceId, work: (home: NodeWorkspaces) => Promise<Result>): Promise<Result> {
    const found = await this.#context.store.read((tables) => tables.workspaces.find(workspaceId));
    if (found === undefined) throw new PlatformError('workspace_not_found', `There is no workspace ${workspaceId}.`);
    return await this.#parts.directory.home(found, work);
  }
}

/** Names under which what is only looked at is held, until whoever looks has looked. */
export const lookHolds = 'look/';

export function versionHold(number: number): string {
  return `version/${number}`;
}

export function authorText({ name, email }: PreparedVersion['author']): string {
  return `${name} <${email}>`;
}

/** The next version, in the caller's transaction, on exactly the head that it was made for. */
export async function addVersion(
  tables: Tables,
  added: {
    readonly workspaceId: WorkspaceId;
    readonly onNumber: number;
    readonly version: Omit<WorkspaceVersionRecord, 'workspaceId' | 'number'>;
    readonly operationId: string | null;
  },
): Promise<WorkspaceVersionRecord> {
  const { workspaceId, onNumber, version, operationId } = added;
  const workspace = await tables.workspaces.find(workspaceId);
  if (workspace === undefined || workspace.state === 'deleting') {
    throw new PlatformError('workspace_not_found', `There is no workspace ${workspaceId} any more.`);
  }
  if (workspace.headNumber !== onNumber) throw workspaceMoved(workspace.name, workspace.headNumber, onNumber);
  const { commit, createdAtMs: atMs, kind, sandboxId, planId, createdBy } = version;
  const record: WorkspaceVersionRecord = { workspaceId, number: onNumber + 1, ...version };
  await tables.workspaces.insertVersion(record);
  await changeWorkspace(tables, workspace, {
    ...{ state: 'ready', headNumber: record.number, headCommit: commit, updatedAtMs: atMs },
  });
  const data = { number: record.number, commit, kind, planId, by: createdBy, operationId };
  await tellWorkspace(tables, workspace, { kind: 'workspace.version', atMs, sandboxId, data });
  return record;
}

export function workspaceMoved(name: string, headNumber: number, expected: number): PlatformError {
  const message = `The workspace "${name}" is at version ${headNumber}, not at ${expected}.`;
  return new PlatformError('workspace_moved', message, { details: { headNumber, expected } });
}

/** Unless the sandbox was put on something else meanwhile, or does not have it any more. */
async function moveBase(tables: Tables, moved: PreparedVersion['bases'][number], number: number): Promise<void> {
  const { attachment, commit } = moved;
  const { sandboxId, workspaceId } = attachment;
  const current = (await tables.workspaces.attachmentsOf(sandboxId)).find((one) => one.workspaceId === workspaceId);
  if (current?.baseCommit !== attachment.baseCommit || current.path !== attachment.path) return;
  await tables.workspaces.putAttachment({ ...current, baseNumber: number, baseCommit: commit });
}
