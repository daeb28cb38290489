/**
 * Stop, start and delete. Each is recorded as begun, ordered on the node, recorded as done, in the sandbox's lane; a deletion
 * that was recorded is carried out, sooner or later, whatever happens.
 */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  type PlatformError,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import type { LeaseGate } from './lease-gate.ts';
import { vacateRow } from './lease-rows.ts';
import { type LifeChanges, overtaken } from './life-changes.ts';
import type { Mutations, Operation } from './mutations.ts';
import { checkNotPinned } from './plans/pinned-members.ts';
import type { Lane } from './sandbox-lanes.ts';
import {
  appendEvents,
  checkGeneration,
  checkVersion,
  promisesNoChange,
  type SandboxRecords,
  settingsOf,
} from './sandbox-records.ts';

interface LivesParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly changes: LifeChanges;
}

export class SandboxLives {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #mutations: Mutations;
  readonly #gate: LeaseGate;
  readonly #changes: LifeChanges;
  #deleted: (sandboxId: SandboxId) => void = () => {};

  constructor(context: ControlContext, parts: LivesParts) {
    this.#context = context;
    this.#changes = parts.changes;
    this.#records = parts.records;
    this.#mutations = parts.mutations;
    this.#gate = parts.gate;
  }

  /** Who else must hear when a sandbox is gone. */
  onDeleted(listener: (sandboxId: SandboxId) => void): void {
    this.#deleted = listener;
  }

  stop(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.stopSandbox>,
  ): Promise<SandboxView> {
    return this.#changes.run(
      { caller, sandboxId, conditions, kind: 'stopSandbox', body },
      {
        effect: (lane, record) => this.#stop(lane, record, body.graceMs),
        rest: async (_lane, record, { operation, generation }) => {
          if (record.generation !== generation) throw overtaken(operation, 'Another life was begun since.');
          return record.state.kind === 'stopped' ? record : undefined;
        },
      },
    );
  }

  async #stop(lane: Lane, record: SandboxRecord, graceMs: number): Promise<SandboxRecord> {
    const { nodes, clock, settings, faults } = this.#context;
    const untilMs = clock.nowMs() + settings.transitionMs;
    const stopping = this.#records.after(record, { kind: 'stop', reason: 'requested', untilMs });
    if (stopping.state.kind === 'stopped') return record;
    const isBegun = stopping.state === record.state;
    const begun = isBegun
      ? record
      : await this.#records.commit(lane, { record: stopping, events: [{ kind: 'sandbox.stopping' }] });
    await faults.hit('after-store-stopping');
    const order = { sandboxId: record.id, generation: record.generation, graceMs };
    try {
      await nodes.call(record.nodeId, (node) => node.stopSandbox(order));
    } catch (error) {
      // The refusal says that nothing was changed, so nothing is: it runs on. Of one begun earlier nobody can say that.
      if (promisesNoChange(error) && error.retry === 'backoff' && !isBegun) await this.#stay(lane, begun, error);
      else this.#context.lanes.doubt(lane);
      throw error;
    }
    await faults.hit('after-stop-on-node');
    const stopped = this.#records.after(begun, { kind: 'gone', reason: 'requested', atMs: clock.nowMs() });
    return await this.#records.commitAfterNode(lane, {
      record: stopped,
      events: [{ kind: 'sandbox.stopped', data: { reason: 'requested' } }],
    });
  }

  async #stay(lane: Lane, begun: SandboxRecord, error: PlatformError): Promise<void> {
    const stayed = this.#records.after(begun, { kind: 'stayed' });
    const data = { why: `It could not be stopped: ${error.message}` };
    await this.#records.commitAfterNode(lane, { record: stayed, events: [{ kind: 'sandbox.stop_failed', data }] });
  }

  start(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.startSandbox>,
  ): Promise<SandboxView> {
    const by = caller.keyId;
    return this.#changes.run(
      { caller, sandboxId, conditions, kind: 'startSandbox', body },
      {
        effect: async (lane, record, operation) => {
          const begun = await this.#beginStart(lane, record, body.expiresInMs ?? null);
          return begun === undefined
            ? record
            : await this.#startOnNode(lane, begun, { by, operation, earlier: record });
        },
        rest: async (lane, record, { operation, generation }) => {
          if (record.generation === generation) return undefined;
          const isNext = record.generation === generation + 1;
          if (isNext && record.state.kind === 'running') return record;
          if (!isNext || record.state.kind !== 'starting') throw overtaken(operation, 'It was begun, and is over.');
          return await this.#startOnNode(lane, record, { by, operation, earlier: undefined });
        },
      },
    );
  }

  /** undefined: it runs. */
  async #beginStart(lane: Lane, record: SandboxRecord, expiresInMs: number | null): Promise<SandboxRecord | undefined> {
    const { clock, settings, faults } = this.#context;
    const nowMs = clock.nowMs();
    const next = this.#records.after(record, { kind: 'start', untilMs: nowMs + settings.transitionMs });
    if (next.state === record.state) return undefined;
    const starting = {
      ...next,
      generation: record.generation + 1,
      // A deadline that has passed would end the new life at once: without a new one it has none.
      expiresAtMs: expiresInMs === null ? null : nowMs + expiresInMs,
    };
    const begun = await this.#records.commit(lane, { record: starting, events: [{ kind: 'sandbox.starting' }] });
    await faults.hit('after-store-starting');
    return begun;
  }

  /** Without the record from before, it was begun by somebody who was interrupted: nobody can say that nothing was changed. */
  async #startOnNode(
    lane: Lane,
    begun: SandboxRecord,
    how: { by: string; operation: Operation; earlier: SandboxRecord | undefined },
  ): Promise<SandboxRecord> {
    const { nodes, faults } = this.#context;
    const { id: sandboxId, generation, version } = begun;
    // The same in a repeat: the node takes the same order again, and no other for the same generation.
    const change = { by: how.by, atMs: begun.updatedAtMs, operationId: how.operation.id };
    const order = { sandboxId, generation, version, settings: settingsOf(begun, change) };
    try {
      await nodes.call(begun.nodeId, (node) => node.startSandbox(order));
    } catch (error) {
      if (promisesNoChange(error) && how.earlier) await this.#refuseStart(lane, begun, how.earlier, error);
      else this.#context.lanes.doubt(lane);
      throw error;
    }
    await faults.hit('after-start-on-node');
    const started = this.#records.after(begun, { kind: 'confirmed' });
    return await this.#records.commitAfterNode(lane, { record: started, events: [{ kind: 'sandbox.started' }] });
  }

  /** The life was never begun, so its number is not used up: who asked can ask again for the same one. */
  async #refuseStart(lane: Lane, begun: SandboxRecord, earlier: SandboxRecord, error: PlatformError): Promise<void> {
    const atMs = this.#context.clock.nowMs();
    const back = this.#records.after(begun, { kind: 'refused', why: error.message, atMs });
    const { generation, expiresAtMs } = earlier;
    await this.#records.commitAfterNode(lane, {
      record: { ...back, generation, expiresAtMs },
      events: [{ kind: 'sandbox.stopped', data: { note: error.message } }],
    });
  }

  async delete(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    options: { force: boolean },
  ): Promise<void> {
    const effect = () =>
      this.#gate.pass(sandboxId, conditions, () => this.#deleteOnce(caller, sandboxId, conditions, options));
    await this.#mutations.run({
      caller,
      kind: 'deleteSandbox',
      conditions,
      request: { sandboxId, options },
      effect,
      // What was interrupted may be finished by now, and then there is nothing left to find.
      resume: async () => {
        if ((await this.#records.find(sandboxId)) !== undefined) await effect();
      },
      keep: () => null,
      restore: () => undefined,
    });
  }

  async #deleteOnce(caller: Caller, sandboxId: SandboxId, conditions: Conditions, options: { force: boolean }) {
    await this.#records.get(caller, sandboxId);
    // Not settled first: on a node that is out of reach nothing can be, and what is deleted needs no settling.
    await this.#context.lanes.runUnsettled(sandboxId, async (lane) => {
      const record = await this.#records.find(sandboxId);
      if (record === undefined) return; // Deleted by whoever was before us in the lane: the same answer.
      const begun = await this.#beginDelete(lane, record, { caller, conditions, options });
      await this.#context.faults.hit('after-store-deleting');
      try {
        await this.finishDelete(lane, begun);
      } catch (error) {
        // It is recorded and will be carried out when node and store can: for the caller it is deleted.
        if (!isPlatformError(error)) throw error;
        this.#context.logger.warn('a deletion could not be finished yet', { sandboxId, error });
      }
    });
    this.#gate.opened(sandboxId);
  }

  async #beginDelete(
    lane: Lane,
    record: SandboxRecord,
    asked: { caller: Caller; conditions: Conditions; options: { force: boolean } },
  ): Promise<SandboxRecord> {
    const { caller, conditions, options } = asked;
    const untilMs = this.#context.clock.nowMs() + this.#context.settings.transitionMs;
    const deleting = this.#records.after(record, { kind: 'delete', untilMs });
    if (deleting.state === record.state) return record;
    checkGeneration(record, conditions);
    checkVersion(record, conditions);
    if (!options.force) await this.#records.checkLease(record, conditions);
    const forced = options.force && record.leaseHeld ? { forcedOverLease: record.leaseToken } : {};
    const data = { by: caller.keyId, ...forced };
    return await this.#records.commit(lane, {
      record: deleting,
      events: [{ kind: 'sandbox.deleting', data }],
      also: (tables) => checkNotPinned(tables, record.id),
    });
  }

  /** The rest of a deletion, also after a crash. */
  async finishDelete(lane: Lane, record: SandboxRecord): Promise<void> {
    const { nodes, store, faults, clock, events, lanes } = this.#context;
    const order = { sandboxId: record.id, generation: record.generation };
    await nodes.call(record.nodeId, (node) => node.deleteSandbox(order));
    await faults.hit('after-delete-on-node');
    const lease = { teamId: record.teamId, resource: record.id };
    const atMs = clock.nowMs();
    await store.transact(async (tables) => {
      await vacateRow(tables, lease, { why: 'lost', atMs });
      await tables.leases.remove(lease);
      await tables.sandboxes.remove(record.id);
      await tables.history.removeAll(record.id);
      await appendEvents(tables, { ...record, updatedAtMs: atMs }, [{ kind: 'sandbox.deleted' }]);
    });
    lanes.forget(lane);
    events.notify();
    this.#deleted(record.id);
  }
}
