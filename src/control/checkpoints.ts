/**
 * Checkpoints: recorded before the node makes them, ready when it has, and recorded as going away before it removes them. They outlive their
 * sandbox.
 *
 * Invariants:
 *  - What a node has was recorded first: a checkpoint without a record is left over, and may go.
 *  - Nothing is made from one that is not `ready`; it is not removed while something is being made from it by this server.
 */
import { SharedLock } from '../base/index.ts';
import {
  type BodyOf,
  branchLimits,
  type CheckpointId,
  type CheckpointView,
  type Conditions,
  isPlatformError,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { AttachmentRecord, CheckpointAttachment, CheckpointRecord, SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import { checkpointGone, checkpointViewOf, notUsable } from './checkpoint-views.ts';
import type { ControlContext } from './context.ts';
import { parseCursor, writeCursor } from './cursors.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { Mutations, Operation } from './mutations.ts';
import { checkNotInPlan } from './plans/checkpoints-in-plans.ts';
import type { Lane } from './sandbox-lanes.ts';
import { appendEvents, promisesNoChange, type SandboxRecords } from './sandbox-records.ts';
import type { TeamDisk } from './team-disk.ts';

export interface TakeOptions {
  readonly id: CheckpointId;
  readonly name: string | null;
  readonly isHidden: boolean;
  readonly expiresAtMs: number | null;
  readonly leaseToken: number | null;
  readonly createdBy: CheckpointRecord['createdBy'];
}

interface CheckpointParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly disk: TeamDisk;
}

export class Checkpoints {
  readonly #context: ControlContext;
  readonly #parts: CheckpointParts;
  /** Guards one checkpoint against removal while it is made or used. Between the lane of a sandbox and the node's locks. */
  readonly #lock = new SharedLock<CheckpointId>({ name: 'checkpoint', rank: 1.5 });

  constructor(context: ControlContext, parts: CheckpointParts) {
    this.#context = context;
    this.#parts = parts;
  }

  create(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.createCheckpoint>,
  ): Promise<CheckpointView> {
    const { gate, mutations } = this.#parts;
    const take = (operation: Operation) =>
      gate.pass(sandboxId, conditions, async () => {
        const { clock } = this.#context;
        const record = await this.takeOf(caller, sandboxId, conditions, {
          id: operation.subjectId as CheckpointId,
          name: body.name ?? null,
          isHidden: false,
          expiresAtMs: body.expiresInMs === null ? null : clock.nowMs() + body.expiresInMs,
          leaseToken: conditions.leaseToken ?? null,
          createdBy: caller.keyId,
        });
        return checkpointViewOf(record);
      });
    return mutations.run({
      caller,
      kind: 'createCheckpoint',
      conditions,
      request: { sandboxId, body },
      subject: () => newId('checkpoint', this.#context.random),
      effect: take,
      resume: async (operation) => {
        const id = operation.subjectId as CheckpointId;
        const found = await this.settled(id);
        if (found !== undefined) return checkpointViewOf(found);
        if (await this.#wasMade(caller, sandboxId, id)) throw checkpointGone(id);
        return await take(operation);
      },
    });
  }

  /** Makes one of a sandbox that may be changed by this caller, and drops those beyond what is kept of it. */
  async takeOf(
    caller: Pick<Caller, 'teamId'>,
    sandboxId: SandboxId,
    conditions: Conditions,
    options: TakeOptions,
  ): Promise<CheckpointRecord> {
    const { records, disk } = this.#parts;
    await records.get(caller, sandboxId);
    await disk.admit(caller.teamId, 0);
    const { made, sandbox } = await this.#context.lanes.run(sandboxId, async (lane) => {
      const sandbox = await records.get(caller, sandboxId);
      await records.check(sandbox, conditions);
      checkCanBeTaken(sandbox);
      return { made: await this.#lock.change(options.id, () => this.#take(lane, sandbox, options)), sandbox };
    });
    if (!options.isHidden) await this.#dropBeyond(sandbox);
    return made;
  }

  /** Of a hidden sandbox, in which the attachments are in place though nothing records them. */
  takeOfHidden(
    sandbox: SandboxRecord,
    options: TakeOptions & Pick<CheckpointRecord, 'attachments'>,
  ): Promise<CheckpointRecord> {
    return this.#lock.change(options.id, () => this.#make(sandbox, options));
  }

  async #take(_lane: Lane, sandbox: SandboxRecord, options: TakeOptions): Promise<CheckpointRecord> {
    const { id } = sandbox;
    const attachments = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(id));
    return await this.#make(sandbox, { ...options, attachments: attachments.map(keptOf) });
  }

  async #make(
    sandbox: SandboxRecord,
    options: TakeOptions & Pick<CheckpointRecord, 'attachments'>,
  ): Promise<CheckpointRecord> {
    const { store, clock, faults, settings } = this.#context;
    const { leaseToken, ...chosen } = options;
    const record: CheckpointRecord = {
      ...chosen,
      teamId: sandbox.teamId,
      nodeId: sandbox.nodeId,
      sandboxId: sandbox.id,
      state: 'creating',
      generation: sandbox.generation,
      spec: sandbox.spec,
      network: sandbox.network,
      metadata: sandbox.metadata,
      sizeBytes: null,
      frozenMs: null,
      createdAtMs: clock.nowMs(),
    };
    await store.transact(async (tables) => {
      if ((await tables.checkpoints.count(record.teamId)) >= branchLimits.checkpoints) {
        const message = `A team has at most ${branchLimits.checkpoints} checkpoints.`;
        throw new PlatformError('limit_exceeded', message, { details: { limit: branchLimits.checkpoints } });
      }
      await tables.checkpoints.put(record);
    });
    await faults.hit('after-store-checkpoint');
    const order = {
      sandboxId: sandbox.id,
      generation: sandbox.generation,
      checkpointId: record.id,
      // The node asks a stopped sandbox for nothing that only a life has.
      leaseToken,
    };
    try {
      const made = await this.#context.nodes.call(record.nodeId, (node) => node.branches.checkpoint(order));
      await faults.hit('after-checkpoint-on-node');
      return await this.#ready(record, sandbox, made);
    } catch (error) {
      if (promisesNoChange(error)) await store.transact((tables) => tables.checkpoints.remove(record.id));
      // Otherwise it stays `creating`, and is settled within `settings.transitionMs`.
      else this.#context.logger.warn('a checkpoint is in doubt', { id: record.id, ms: settings.transitionMs, error });
      throw error;
    }
  }

  async #ready(
    record: CheckpointRecord,
    sandbox: SandboxRecord | undefined,
    made: { readonly sizeBytes: number; readonly frozenMs: number },
  ): Promise<CheckpointRecord> {
    const { sizeBytes, frozenMs } = made;
    const ready: CheckpointRecord = { ...record, state: 'ready', sizeBytes, frozenMs: Math.ceil(frozenMs) };
    try {
      await this.#context.store.transact(async (tables) => {
        await tables.checkpoints.put(ready);
        await this.#tell(tables, 'checkpoint.created', ready, sandbox);
      });
    } catch (cause) {
      throw new PlatformError('outcome_unknown', 'The checkpoint was made, and could not be recorded yet.', { cause });
    }
    this.#context.events.notify();
    return ready;
  }

  async get(caller: Caller, id: CheckpointId): Promise<CheckpointView> {
    return checkpointViewOf(await this.#get(caller, id));
  }

  async list(
    caller: Caller,
    query: QueryOf<typeof routes.listCheckpoints>,
  ): Promise<ResultOf<typeof routes.listCheckpoints>> {
    const { sandboxId, name, cursor, limit } = query;
    const filter = {
      teamId: caller.teamId,
      isHidden: false,
      ...(sandboxId !== undefined && { sandboxId }),
      ...(name !== undefined && { name }),
    };
    const after = cursor === undefined ? undefined : parseCursor('checkpoint', cursor);
    const found = await this.#context.store.read((tables) =>
      tables.checkpoints.list(filter, { limit: limit + 1, ...(after && { after }) }),
    );
    const shown = found.slice(0, limit);
    const last = shown.at(-1);
    const nextCursor = found.length > limit && last !== undefined ? writeCursor(last) : null;
    return { items: shown.map(checkpointViewOf), nextCursor };
  }

  /** Something is made from it: it is there until that is done. */
  using<Result>(
    caller: Pick<Caller, 'teamId' | 'sandboxId'>,
    id: CheckpointId,
    work: (checkpoint: CheckpointRecord) => Promise<Result>,
  ): Promise<Result> {
    return this.#lock.use(id, async () => {
      const checkpoint = await this.#get(caller, id);
      if (checkpoint.state !== 'ready') throw notUsable(checkpoint);
      return await work(checkpoint);
    });
  }

  async delete(caller: Caller, id: CheckpointId, conditions: Conditions): Promise<void> {
    await this.#parts.mutations.run({
      caller,
      kind: 'deleteCheckpoint',
      conditions,
      request: { id },
      effect: async () => {
        await this.#get(caller, id);
        await this.#context.store.read((tables) => checkNotInPlan(tables, id));
        await this.remove(id);
      },
      // What was interrupted may be finished by now, and then there is nothing left to find.
      resume: () => this.remove(id),
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** Removes it when nobody uses it any more; of one that is gone: succeeds. Recorded, it is carried out sooner or later. */
  remove(id: CheckpointId): Promise<void> {
    return this.#lock.change(id, async () => {
      const { store, faults } = this.#context;
      const record = await store.read((tables) => tables.checkpoints.find(id));
      if (record === undefined) return;
      if (record.state !== 'deleting') {
        await store.transact((tables) => tables.checkpoints.put({ ...record, state: 'deleting' }));
      }
      await faults.hit('after-store-checkpoint-deleting');
      try {
        await this.#finishRemoval(record);
      } catch (error) {
        if (!isPlatformError(error)) throw error;
        this.#context.logger.warn('a checkpoint could not be removed yet', { id, error });
      }
    });
  }

  async #finishRemoval(record: CheckpointRecord): Promise<void> {
    const { store, nodes, faults, events } = this.#context;
    await nodes.call(record.nodeId, (node) => node.branches.removeCheckpoint(record.id));
    await faults.hit('after-checkpoint-removed-on-node');
    await store.transact(async (tables) => {
      await tables.checkpoints.remove(record.id);
      if (record.sizeBytes !== null) {
        await this.#tell(tables, 'checkpoint.deleted', record, await tables.sandboxes.find(record.sandboxId));
      }
    });
    events.notify();
  }

  /** The record once nobody works on it: what a crash left is finished or given up by asking the node. */
  settled(id: CheckpointId): Promise<CheckpointRecord | undefined> {
    return this.#lock.change(id, async () => {
      const { store, nodes } = this.#context;
      const record = await store.read((tables) => tables.checkpoints.find(id));
      if (record === undefined) return undefined;
      if (record.state === 'deleting') {
        await this.#finishRemoval(record);
        return undefined;
      }
      if (record.state === 'lost') return record;
      const made = await nodes.call(record.nodeId, (node) => node.branches.findCheckpoint(id));
      if (record.state === 'ready') return made === undefined ? await this.#lost(record) : record;
      const sandbox = await store.read((tables) => tables.sandboxes.find(record.sandboxId));
      if (made !== undefined) return await this.#ready(record, sandbox, made);
      // The order may still be on its way: what it makes then has no record, and is removed when it is seen.
      await nodes.call(record.nodeId, (node) => node.branches.removeCheckpoint(id));
      await store.transact((tables) => tables.checkpoints.remove(id));
      return undefined;
    });
  }

  async #lost(record: CheckpointRecord): Promise<CheckpointRecord> {
    const lost: CheckpointRecord = { ...record, state: 'lost' };
    await this.#context.store.transact(async (tables) => {
      await tables.checkpoints.put(lost);
      await this.#tell(tables, 'checkpoint.lost', lost, await tables.sandboxes.find(record.sandboxId));
    });
    this.#context.events.notify();
    return lost;
  }

  /** Checkpoints that are made, used or removed now. */
  get busy(): number {
    return this.#lock.size;
  }

  async #get(caller: Pick<Caller, 'teamId' | 'sandboxId'>, id: CheckpointId): Promise<CheckpointRecord> {
    const found = await this.#context.store.read((tables) => tables.checkpoints.find(id));
    // A token of one sandbox does not get at the files of another through a checkpoint.
    const isInReach = caller.sandboxId === null || caller.sandboxId === found?.sandboxId;
    if (found === undefined || found.teamId !== caller.teamId || !isInReach) throw checkpointGone(id);
    return found;
  }

  async #dropBeyond(sandbox: SandboxRecord): Promise<void> {
    const { keepCheckpoints: keep, id: sandboxId } = sandbox;
    if (keep === null) return;
    const filter = { sandboxId, isHidden: false, states: ['ready'] as const };
    const found = await this.#context.store.read((tables) =>
      tables.checkpoints.list(filter, { limit: branchLimits.checkpoints }),
    );
    for (const { id } of found.slice(keep)) await this.remove(id);
  }

  async #wasMade(caller: Caller, sandboxId: SandboxId, id: CheckpointId): Promise<boolean> {
    const { teamId } = caller;
    for (let after = 0; ; ) {
      const found = await this.#context.store.read((tables) =>
        tables.events.list({ teamId, sandboxId, after, limit: 1_000 }),
      );
      if (found.some(({ kind, data }) => kind === 'checkpoint.created' && data['checkpointId'] === id)) return true;
      if (found.length < 1_000) return false;
      after = found.at(-1)?.sequence ?? after;
    }
  }

  /** With the sandbox's state where it is still there. */
  async #tell(
    tables: Parameters<typeof appendEvents>[0],
    kind: string,
    record: CheckpointRecord,
    sandbox: SandboxRecord | undefined,
  ): Promise<void> {
    if (record.isHidden) return;
    const atMs = this.#context.clock.nowMs();
    const data = { checkpointId: record.id, name: record.name };
    if (sandbox !== undefined) {
      await appendEvents(tables, { ...sandbox, updatedAtMs: atMs }, [{ kind, data }]);
      return;
    }
    await tables.events.append({ teamId: record.teamId, sandboxId: record.sandboxId, kind, atMs, data });
  }
}

function keptOf(attachment: AttachmentRecord): CheckpointAttachment {
  const { workspaceId, path, baseNumber, baseCommit, baseline } = attachment;
  return { workspaceId, path, baseNumber, baseCommit, baseline };
}

function checkCanBeTaken({ state, id }: SandboxRecord): void {
  if (state.kind === 'running' || state.kind === 'paused' || state.kind === 'stopped') return;
  const message = `Sandbox ${id} is ${state.kind}: neither running, paused nor stopped.`;
  throw new PlatformError('sandbox_wrong_state', message, { details: { state: state.kind } });
}
