/**
 * Workspaces in sandboxes: attach, detach, and back to the base. Files first, then the record: what is recorded as attached is there, so that nobody
 * takes a missing checkout for one whose files were all deleted.
 */
import { KeyedMutex } from '../../base/index.ts';
import {
  type AttachmentView,
  type BodyOf,
  type Conditions,
  PlatformError,
  type QueryOf,
  type routes,
  type SandboxId,
} from '../../protocol/index.ts';
import type { AttachmentRecord, SandboxRecord, Tables, WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import type { LeaseGate } from '../lease-gate.ts';
import type { Mutations } from '../mutations.ts';
import { checkGeneration, type SandboxRecords } from '../sandbox-records.ts';
import { attachPath, checkApart } from './attach-paths.ts';
import { type Place, placeCheckout, removeCheckout, requireFree } from './checkout-placement.ts';
import type { SandboxChanges } from './sandbox-changes.ts';
import { type ReadyWorkspace, requireReady, tellWorkspace, type WorkspaceDirectory } from './workspace-directory.ts';

export interface AttachmentParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly directory: WorkspaceDirectory;
  readonly changes: SandboxChanges;
}

type AttachBody = BodyOf<typeof routes.attachWorkspace>;

/** One attachment of a sandbox that is to be changed, or made. */
export interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  /** By id or name. */
  readonly workspace: string;
  readonly conditions: Conditions;
}

export class Attachments {
  readonly #context: ControlContext;
  readonly #parts: AttachmentParts;
  /** Guards the attachments and checkouts of one sandbox. Before its lane. */
  readonly #lock = new KeyedMutex<SandboxId>({ name: 'attachments', rank: 0.7 });

  constructor(context: ControlContext, parts: AttachmentParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async list(caller: Caller, sandboxId: SandboxId): Promise<{ items: AttachmentView[] }> {
    const { id } = await this.#parts.records.get(caller, sandboxId);
    const found = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(id));
    return { items: await this.#parts.directory.views(found) };
  }

  async attach(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: AttachBody,
  ): Promise<AttachmentView> {
    if (caller.sandboxId !== null) {
      throw new PlatformError('forbidden', 'A token of one sandbox does not reach the workspaces of its team.');
    }
    return await this.#parts.mutations.run({
      caller,
      kind: 'attachWorkspace',
      conditions,
      request: { sandboxId, body },
      effect: () => this.#attachIn(caller, sandboxId, { conditions, body, isRepeat: false }),
      resume: () => this.#attachIn(caller, sandboxId, { conditions, body, isRepeat: true }),
    });
  }

  /** What is there already, from an attempt that was interrupted, is the answer. */
  async ensure(caller: Caller, sandboxId: SandboxId, body: AttachBody): Promise<void> {
    await this.#attachIn(caller, sandboxId, { conditions: {}, body, isRepeat: true });
  }

  #attachIn(
    caller: Caller,
    sandboxId: SandboxId,
    how: { readonly conditions: Conditions; readonly body: AttachBody; readonly isRepeat: boolean },
  ): Promise<AttachmentView> {
    const { conditions, body, isRepeat } = how;
    const { directory } = this.#parts;
    return this.change({ caller, sandboxId, workspace: body.workspace, conditions }, async (sandbox) => {
      const workspace = await directory.ready(caller, body.workspace);
      const version = await directory.version(workspace, body.version);
      const path = attachPath(body.path, workspace.name);
      const others = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(sandboxId));
      const known = others.find(({ workspaceId }) => workspaceId === workspace.id);
      if (known !== undefined && isRepeat && known.path === path) return await this.viewOf(known);
      if (known !== undefined) throw alreadyAttached(workspace, known);
      checkApart(path, others);
      if (workspace.nodeId !== sandbox.nodeId) throw elsewhere(workspace, sandbox);
      const attachment = attachmentOf(caller, { sandbox, version, path, atMs: this.#context.clock.nowMs() });
      await this.#place(sandbox, attachment, { conditions, isRepeat });
      await this.#context.faults.hit('after-checkout-placed');
      await this.#context.store.transact((tables) => recordAttached(tables, sandbox, attachment));
      this.#context.events.notify();
      return await this.viewOf(attachment);
    });
  }

  /** In a repeat the files may be in place and nobody lived to record it: then they are exactly those of the version. */
  async #place(
    sandbox: SandboxRecord,
    attachment: AttachmentRecord,
    how: { readonly conditions: Conditions; readonly isRepeat: boolean },
  ): Promise<void> {
    await this.at(sandbox, attachment, how.conditions, async (place) => {
      try {
        await requireFree(place);
      } catch (error) {
        const isOurs = how.isRepeat && (await this.#parts.changes.isUntouched(sandbox, attachment, place.leaseToken));
        if (isOurs) return;
        throw error;
      }
      await placeCheckout(place, attachment.baseCommit);
    });
  }

  async detach(asked: Asked, query: QueryOf<typeof routes.detachWorkspace>): Promise<void> {
    const { caller, sandboxId, workspace, conditions } = asked;
    const { store, events, clock } = this.#context;
    const detach = (isRepeat: boolean) =>
      this.alone(asked, async () => {
        const record = await this.#parts.records.get(caller, sandboxId);
        checkGeneration(record, conditions);
        await this.#parts.records.checkLease(record, conditions);
        const found = await this.#parts.directory.attachment(caller, sandboxId, workspace).catch((error: unknown) => {
          if (isRepeat) return undefined;
          throw error;
        });
        if (found === undefined) return;
        if (query.removeFiles === 'true') {
          const running = await this.#parts.records.running(record, conditions);
          await this.at(running, found, conditions, removeCheckout);
        }
        await store.transact(async (tables) => {
          const { workspaceId, path } = found;
          await tables.workspaces.removeAttachments({ sandboxId, workspaceId });
          const home = await tables.workspaces.find(workspaceId);
          if (home === undefined) return;
          const data = { path, by: caller.keyId };
          await tellWorkspace(tables, home, { kind: 'workspace.detached', atMs: clock.nowMs(), sandboxId, data });
        });
        events.notify();
      });
    await this.#parts.mutations.run({
      caller,
      kind: 'detachWorkspace',
      conditions,
      request: { sandboxId, workspace, query },
      effect: () => detach(false),
      resume: () => detach(true),
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** The checkout as its base has it. Repeating it is harmless. */
  async drop(asked: Asked): Promise<AttachmentView> {
    const { caller, sandboxId, workspace, conditions } = asked;
    return await this.#parts.mutations.run({
      caller,
      kind: 'dropAttachment',
      conditions,
      request: { sandboxId, workspace },
      effect: () =>
        this.change(asked, async (sandbox) => {
          const attachment = await this.#parts.directory.attachment(caller, sandboxId, workspace);
          await this.at(sandbox, attachment, conditions, (place) => placeCheckout(place, attachment.baseCommit));
          await this.#context.faults.hit('after-checkout-dropped');
          return await this.moveTo(sandbox, attachment, attachment, { kind: 'workspace.dropped', by: caller });
        }),
    });
  }

  /** Runs alone among what changes this sandbox's checkouts, once it runs and the caller may. */
  change<Result>(asked: Asked, work: (sandbox: SandboxRecord) => Promise<Result>): Promise<Result> {
    const { caller, sandboxId, conditions } = asked;
    const { records } = this.#parts;
    return this.alone(asked, async () => {
      const record = await records.get(caller, sandboxId);
      checkGeneration(record, conditions);
      await records.checkLease(record, conditions);
      return await work(await records.running(record, conditions));
    });
  }

  /** Alone among what changes or publishes this sandbox's checkouts, past the gate of its lease. */
  alone<Result>({ sandboxId, conditions }: Asked, work: () => Promise<Result>): Promise<Result> {
    return this.#parts.gate.pass(sandboxId, conditions, () => this.#lock.run(sandboxId, work));
  }

  at<Result>(
    sandbox: SandboxRecord,
    { workspaceId, path }: Pick<AttachmentRecord, 'workspaceId' | 'path'>,
    conditions: Conditions,
    work: (place: Place) => Promise<Result>,
  ): Promise<Result> {
    const life = { sandboxId: sandbox.id, generation: sandbox.generation };
    const leaseToken = conditions.leaseToken ?? null;
    return this.#context.nodes.call(sandbox.nodeId, (node) => work({ node, life, leaseToken, workspaceId, path }));
  }

  /** Its files were written anew: how they looked before says nothing. Refused where the life that they were written in is over. */
  async moveTo(
    sandbox: Pick<SandboxRecord, 'id' | 'generation'>,
    attachment: AttachmentRecord,
    base: Pick<AttachmentRecord, 'baseNumber' | 'baseCommit'>,
    event: { readonly kind: string; readonly by: Caller; readonly data?: Readonly<Record<string, unknown>> },
  ): Promise<AttachmentView> {
    const { baseNumber, baseCommit } = base;
    const moved = { ...attachment, baseNumber, baseCommit, baseline: null };
    const { sandboxId, workspaceId, path } = attachment;
    const { store, clock, events } = this.#context;
    await store.transact(async (tables) => {
      const workspace = await tables.workspaces.find(workspaceId);
      if (workspace === undefined) return;
      await requireSameLife(tables, sandbox);
      await tables.workspaces.putAttachment(moved);
      const data = { path, version: baseNumber, by: event.by.keyId, ...event.data };
      await tellWorkspace(tables, workspace, { kind: event.kind, atMs: clock.nowMs(), sandboxId, data });
    });
    events.notify();
    return await this.viewOf(moved);
  }

  async viewOf(attachment: AttachmentRecord): Promise<AttachmentView> {
    const [view] = await this.#parts.directory.views([attachment]);
    if (view === undefined) throw new PlatformError('workspace_not_found', 'The workspace was deleted meanwhile.');
    return view;
  }
}

export function attachmentOf(
  caller: Pick<Caller, 'keyId'>,
  what: {
    readonly sandbox: Pick<SandboxRecord, 'id' | 'teamId'>;
    readonly version: WorkspaceVersionRecord;
    readonly path: string;
    readonly atMs: number;
  },
): AttachmentRecord {
  const { sandbox, version, path, atMs } = what;
  return {
    sandboxId: sandbox.id,
    workspaceId: version.workspaceId,
    teamId: sandbox.teamId,
    path,
    baseNumber: version.number,
    baseCommit: version.commit,
    baseline: null,
    attachedAtMs: atMs,
    attachedBy: caller.keyId,
  };
}

/** A restore gives a sandbox other files and what those were made from: what was written before it is not there any more. */
async function requireSameLife(
  tables: Tables,
  { id: sandboxId, generation }: Pick<SandboxRecord, 'id' | 'generation'>,
): Promise<void> {
  const current = await tables.sandboxes.find(sandboxId);
  if (current === undefined) {
    throw new PlatformError('sandbox_not_found', 'The sandbox was deleted meanwhile.', { details: { sandboxId } });
  }
  checkGeneration(current, { generation });
}

/** The workspace and the sandbox are looked at again: both may have gone while files were written. */
async function recordAttached(
  tables: Tables,
  sandbox: Pick<SandboxRecord, 'id' | 'generation'>,
  attachment: AttachmentRecord,
): Promise<void> {
  const { sandboxId, workspaceId, path, baseNumber, attachedAtMs: atMs, attachedBy: by } = attachment;
  const workspace = await tables.workspaces.find(workspaceId);
  if (workspace === undefined) throw new PlatformError('workspace_not_found', 'The workspace was deleted meanwhile.');
  requireReady(workspace);
  await requireSameLife(tables, sandbox);
  await tables.workspaces.putAttachment(attachment);
  const data = { path, version: baseNumber, by };
  await tellWorkspace(tables, workspace, { kind: 'workspace.attached', atMs, sandboxId, data });
}

function alreadyAttached(workspace: ReadyWorkspace, { sandboxId, path }: AttachmentRecord): PlatformError {
  const message = `Sandbox ${sandboxId} has the workspace "${workspace.name}" at ${path} already.`;
  return new PlatformError('workspace_in_use', message, { details: { sandboxId, path, workspaceId: workspace.id } });
}

export function elsewhere(
  workspace: { readonly name: string; readonly nodeId: string },
  sandbox: { readonly nodeId: string },
): PlatformError {
  const message = `The workspace "${workspace.name}" is at home on another node than the sandbox.`;
  const details = { workspaceNode: workspace.nodeId, sandboxNode: sandbox.nodeId };
  return new PlatformError('invalid_request', message, { details });
}
