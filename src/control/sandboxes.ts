/** Sandboxes: create, list, get, stop, start, delete. Each change runs in the sandbox's lane. */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { LeaseRecord, SandboxFilter, SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { parseCursor, writeCursor } from './cursors.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { MetadataService } from './metadata.ts';
import { checkMetadata, dropEmpty } from './metadata-rules.ts';
import type { Mutations, Operation } from './mutations.ts';
import type { Lane } from './sandbox-lanes.ts';
import { appendEvents, type SandboxRecords, settingsOf } from './sandbox-records.ts';

export interface Created {
  readonly view: SandboxView;
  /** False: a sandbox with the name was there. */
  readonly created: boolean;
}

type CreateBody = BodyOf<typeof routes.createSandbox>;

interface SandboxesParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly metadata: MetadataService;
}

export class Sandboxes {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #mutations: Mutations;
  readonly #gate: LeaseGate;
  readonly #metadata: MetadataService;
  #deleted: (sandboxId: SandboxId) => void = () => {};

  constructor(context: ControlContext, parts: SandboxesParts) {
    this.#context = context;
    this.#records = parts.records;
    this.#mutations = parts.mutations;
    this.#gate = parts.gate;
    this.#metadata = parts.metadata;
  }

  async create(caller: Caller, conditions: Conditions, body: CreateBody): Promise<Created> {
    checkMetadata(body.metadata);
    checkEnvironment(body.env);
    if (body.ifExists === 'get' && body.name === undefined) {
      throw new PlatformError('invalid_request', '`ifExists: "get"` needs a name to look for.', {
        details: { path: 'name' },
      });
    }
    return await this.#mutations.run({
      caller,
      kind: 'createSandbox',
      conditions,
      request: body,
      subject: () => newId('sandbox', this.#context.random),
      effect: (operation) => this.#createOrGet(caller, body, operation),
      resume: (operation) => this.#resumeCreate(caller, body, operation),
    });
  }

  async #createOrGet(caller: Caller, body: CreateBody, operation: Operation): Promise<Created> {
    const sandboxId = operation.subjectId as SandboxId;
    for (;;) {
      if (body.name !== undefined && body.ifExists === 'get') {
        const existing = await this.#waitForNamed(caller, body.name);
        if (existing !== undefined) return { view: await this.#records.view(existing), created: false };
      }
      try {
        const record = await this.#context.lanes.run(sandboxId, (lane) =>
          this.#createInLane(lane, caller, body, operation),
        );
        return { view: await this.#records.view(record), created: true };
      } catch (error) {
        // Somebody was faster with the name: theirs is the answer.
        if (isPlatformError(error, 'name_taken') && body.ifExists === 'get') continue;
        throw error;
      }
    }
  }

  /** The sandbox of this name once nobody is making or removing it; undefined if there is none. */
  async #waitForNamed(caller: Caller, name: string): Promise<SandboxRecord | undefined> {
    for (;;) {
      const key = { teamId: caller.teamId, name };
      const found = await this.#context.store.read((tables) => tables.sandboxes.findByName(key));
      if (found === undefined) return undefined;
      if (found.state.kind !== 'creating' && found.state.kind !== 'deleting') return found;
      const settled = await this.#context.lanes.run(found.id, () => this.#records.find(found.id));
      if (settled?.state.kind === 'creating' || settled?.state.kind === 'deleting') {
        const details = { sandboxId: found.id, state: settled.state.kind };
        throw new PlatformError('sandbox_wrong_state', `The sandbox "${name}" is ${settled.state.kind}.`, { details });
      }
    }
  }

  async #createInLane(lane: Lane, caller: Caller, body: CreateBody, operation: Operation): Promise<SandboxRecord> {
    const { store, clock, settings, nodes, faults } = this.#context;
    const nowMs = clock.nowMs();
    const record: SandboxRecord = {
      id: lane.sandboxId,
      teamId: caller.teamId,
      nodeId: nodes.choose(),
      name: body.name ?? null,
      spec: {
        template: body.template,
        limits: { ...settings.defaultLimits, ...withoutUndefined(body.limits) },
        env: body.env,
        noNewPrivileges: body.noNewPrivileges,
      },
      state: { kind: 'creating', untilMs: nowMs + settings.transitionMs },
      generation: 1,
      version: 1,
      metadata: dropEmpty(body.metadata),
      metadataVersion: 1,
      expiresAtMs: body.expiresInMs === null ? null : nowMs + body.expiresInMs,
      leaseToken: 0,
      leaseHeld: false,
      createdAtMs: nowMs,
      createdBy: caller.keyId,
      userId: caller.userId,
      updatedAtMs: nowMs,
    };
    await store.transact(async (tables) => {
      const count = await tables.sandboxes.count({ teamId: caller.teamId });
      if (count >= settings.sandboxesPerTeam) {
        throw new PlatformError('limit_exceeded', `A team has at most ${settings.sandboxesPerTeam} sandboxes.`);
      }
      await tables.sandboxes.insert(record);
    });
    await faults.hit('after-store-creating');
    return await this.#makeOnNode(lane, record, operation);
  }

  async #makeOnNode(lane: Lane, record: SandboxRecord, operation: Operation): Promise<SandboxRecord> {
    const { nodes, faults, clock } = this.#context;
    const change = { by: record.createdBy, atMs: record.createdAtMs, operationId: operation.id };
    const order = {
      sandboxId: record.id,
      generation: record.generation,
      version: record.version,
      mark: {
        sandboxId: record.id,
        teamId: record.teamId,
        name: record.name,
        createdAtMs: record.createdAtMs,
        createdBy: record.createdBy,
      },
      spec: record.spec,
      settings: settingsOf(record, change),
    };
    try {
      await nodes.call(record.nodeId, (node) => node.createSandbox(order));
    } catch (error) {
      if (isPlatformError(error) && error.retry !== 'unknown') {
        // Nothing is left on the node: the record and its name go too.
        await this.#context.store.transact((tables) => tables.sandboxes.remove(record.id));
      } else {
        this.#context.lanes.doubt(lane);
      }
      throw error;
    }
    await faults.hit('after-create-on-node');
    const created = this.#records.after(record, { kind: 'confirmed' });
    const history = {
      sandboxId: record.id,
      metadataVersion: 1,
      atMs: clock.nowMs(),
      by: record.createdBy,
      operationId: operation.id,
      changes: record.metadata,
    };
    return await this.#records.commit(lane, {
      record: created,
      events: [{ kind: 'sandbox.created' }],
      also: (tables) => tables.history.append(history),
    });
  }

  /** After a crash: what the record and the node already have is the answer; what is missing is made. */
  async #resumeCreate(caller: Caller, body: CreateBody, operation: Operation): Promise<Created> {
    const sandboxId = operation.subjectId as SandboxId;
    const found = await this.#records.find(sandboxId);
    if (found === undefined) return await this.#createOrGet(caller, body, operation);
    const record = await this.#context.lanes.run(sandboxId, async (lane) => {
      const current = await this.#records.find(sandboxId);
      if (current === undefined) return await this.#createInLane(lane, caller, body, operation);
      if (current.state.kind !== 'creating') return current;
      return await this.#makeOnNode(lane, current, operation);
    });
    return { view: await this.#records.view(record), created: true };
  }

  async get(caller: Caller, sandboxId: SandboxId): Promise<SandboxView> {
    return await this.#records.view(await this.#records.get(caller, sandboxId));
  }

  async list(
    caller: Caller,
    query: QueryOf<typeof routes.listSandboxes>,
  ): Promise<ResultOf<typeof routes.listSandboxes>> {
    const filter: SandboxFilter = {
      teamId: caller.teamId,
      ...(query.state && { states: query.state }),
      ...(query.metadata && { metadata: Object.fromEntries(query.metadata.map(splitPair)) }),
      ...(query.namePrefix && { namePrefix: query.namePrefix }),
      ...(query.mine === 'true' && (caller.userId === null ? { createdBy: caller.keyId } : { userId: caller.userId })),
    };
    const after = query.cursor === undefined ? undefined : parseCursor(query.cursor);
    const page = { limit: query.limit + 1, ...(after && { after }) };
    const { records, leases } = await this.#context.store.read(async (tables) => {
      const records = await tables.sandboxes.list(filter, page);
      const leases = new Map<string, LeaseRecord>();
      if (records.some((record) => record.leaseHeld)) {
        for (const lease of await tables.leases.listHeld(caller.teamId)) leases.set(lease.resource, lease);
      }
      return { records, leases };
    });
    const shown = records.slice(0, query.limit);
    const last = shown.at(-1);
    return {
      items: shown.map((record) => this.#records.viewWith(record, leases.get(record.id))),
      nextCursor: records.length > query.limit && last !== undefined ? writeCursor(last) : null,
    };
  }

  /** Metadata and deadline in one update. */
  update(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.updateSandbox>,
  ): Promise<SandboxView> {
    return this.#metadata.update(caller, sandboxId, conditions, body);
  }

  stop(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.stopSandbox>,
  ): Promise<SandboxView> {
    return this.#changeLife(caller, { sandboxId, conditions, kind: 'stopSandbox', body }, async (lane, record) => {
      const { nodes, clock, settings, faults } = this.#context;
      const untilMs = clock.nowMs() + settings.transitionMs;
      const stopping = this.#records.after(record, { kind: 'stop', reason: 'requested', untilMs });
      if (stopping.state === record.state && record.state.kind === 'stopped') return record;
      const begun = await this.#records.commit(lane, { record: stopping, events: [{ kind: 'sandbox.stopping' }] });
      await faults.hit('after-store-stopping');
      const order = { sandboxId, generation: record.generation, graceMs: body.graceMs };
      await this.#orOpen(
        lane,
        nodes.call(record.nodeId, (node) => node.stopSandbox(order)),
      );
      await faults.hit('after-stop-on-node');
      const stopped = this.#records.after(begun, { kind: 'gone', reason: 'requested', atMs: clock.nowMs() });
      return await this.#records.commit(lane, {
        record: stopped,
        events: [{ kind: 'sandbox.stopped', data: { reason: 'requested' } }],
      });
    });
  }

  start(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.startSandbox>,
  ): Promise<SandboxView> {
    return this.#changeLife(
      caller,
      { sandboxId, conditions, kind: 'startSandbox', body },
      async (lane, record, operation) => {
        const { nodes, clock, settings, faults } = this.#context;
        const nowMs = clock.nowMs();
        const next = this.#records.after(record, { kind: 'start', untilMs: nowMs + settings.transitionMs });
        if (next.state === record.state) return record;
        const starting = {
          ...next,
          generation: record.generation + 1,
          // A deadline that has passed would end the new life at once: without a new one it has none.
          expiresAtMs:
            body.expiresInMs === undefined ? null : body.expiresInMs === null ? null : nowMs + body.expiresInMs,
        };
        const begun = await this.#records.commit(lane, { record: starting, events: [{ kind: 'sandbox.starting' }] });
        await faults.hit('after-store-starting');
        const { generation, version } = begun;
        const change = { by: caller.keyId, atMs: nowMs, operationId: operation.id };
        const order = { sandboxId, generation, version, settings: settingsOf(begun, change) };
        try {
          await nodes.call(record.nodeId, (node) => node.startSandbox(order));
        } catch (error) {
          if (isPlatformError(error) && error.retry !== 'unknown') {
            const why = { kind: 'refused', why: error.message, atMs: clock.nowMs() } as const;
            const back = this.#records.after(begun, why);
            await this.#records.commit(lane, {
              record: back,
              events: [{ kind: 'sandbox.stopped', data: { note: error.message } }],
            });
          } else {
            this.#context.lanes.doubt(lane);
          }
          throw error;
        }
        await faults.hit('after-start-on-node');
        const started = this.#records.after(begun, { kind: 'confirmed' });
        return await this.#records.commit(lane, { record: started, events: [{ kind: 'sandbox.started' }] });
      },
    );
  }

  async delete(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    options: { force: boolean },
  ): Promise<void> {
    await this.#mutations.run({
      caller,
      kind: 'deleteSandbox',
      conditions,
      request: { sandboxId, options },
      effect: () =>
        this.#gate.pass(sandboxId, conditions, () => this.#deleteOnce(caller, sandboxId, conditions, options)),
      // What was interrupted may be finished by now, and then there is nothing left to find.
      resume: () =>
        this.#deleteOnce(caller, sandboxId, {}, { force: true }).catch((error: unknown) => {
          if (!isPlatformError(error, 'sandbox_not_found')) throw error;
        }),
      keep: () => null,
      restore: () => undefined,
    });
  }

  async #deleteOnce(caller: Caller, sandboxId: SandboxId, conditions: Conditions, options: { force: boolean }) {
    const asked = await this.#records.get(caller, sandboxId);
    await this.#context.lanes.run(sandboxId, async (lane) => {
      const record = await this.#records.find(sandboxId);
      if (record === undefined) return; // Deleted by whoever was before us in the lane: the same answer.
      const deleting = this.#records.after(record, {
        kind: 'delete',
        untilMs: this.#context.clock.nowMs() + this.#context.settings.transitionMs,
      });
      if (deleting.state !== record.state) {
        const { leaseToken: _, ...unleased } = conditions;
        if (options.force) await this.#records.check({ ...record, leaseHeld: false }, unleased);
        else await this.#records.check(record, conditions);
      }
      const forced = options.force && record.leaseHeld ? { forcedOverLease: record.leaseToken } : {};
      const begun =
        deleting.state === record.state
          ? record
          : await this.#records.commit(lane, {
              record: deleting,
              events: [{ kind: 'sandbox.deleting', data: { by: caller.keyId, ...forced } }],
            });
      await this.#context.faults.hit('after-store-deleting');
      try {
        await this.finishDelete(lane, begun);
      } catch (error) {
        // It is recorded and will be carried out when the node is back: for the caller it is deleted.
        if (!isPlatformError(error, 'node_unavailable', 'outcome_unknown')) throw error;
      }
    });
    this.#gate.opened(asked.id);
  }

  /** Who else must hear when a sandbox is gone. */
  onDeleted(listener: (sandboxId: SandboxId) => void): void {
    this.#deleted = listener;
  }

  /** The rest of a deletion, also after a crash. */
  async finishDelete(lane: Lane, record: SandboxRecord): Promise<void> {
    const { nodes, store, faults, clock, events } = this.#context;
    const order = { sandboxId: record.id, generation: record.generation };
    await nodes.call(record.nodeId, (node) => node.deleteSandbox(order));
    await faults.hit('after-delete-on-node');
    await store.transact(async (tables) => {
      await tables.sandboxes.remove(lane.sandboxId);
      await tables.history.removeAll(lane.sandboxId);
      await tables.leases.remove({ teamId: record.teamId, resource: record.id });
      await appendEvents(tables, { ...record, updatedAtMs: clock.nowMs() }, [{ kind: 'sandbox.deleted' }]);
    });
    events.notify();
    this.#deleted(record.id);
  }

  #changeLife(
    caller: Caller,
    asked: { sandboxId: SandboxId; conditions: Conditions; kind: string; body: unknown },
    work: (lane: Lane, record: SandboxRecord, operation: Operation) => Promise<SandboxRecord>,
  ): Promise<SandboxView> {
    const { sandboxId, conditions, kind, body } = asked;
    const effect = (operation: Operation, checked: Conditions) =>
      this.#gate.pass(sandboxId, checked, async () => {
        await this.#records.get(caller, sandboxId);
        const record = await this.#context.lanes.run(sandboxId, async (lane) => {
          const current = await this.#records.get(caller, sandboxId);
          await this.#records.check(current, checked);
          return await work(lane, current, operation);
        });
        return await this.#records.view(record);
      });
    return this.#mutations.run({
      caller,
      kind,
      conditions,
      request: { sandboxId, body },
      effect: (operation) => effect(operation, conditions),
      // Interrupted: it was admitted once, and its own first step has changed generation and version since.
      resume: (operation) =>
        effect(operation, conditions.leaseToken === undefined ? {} : { leaseToken: conditions.leaseToken }),
    });
  }

  /** An order whose outcome nobody knows leaves the sandbox in doubt. */
  async #orOpen<Result>(lane: Lane, order: Promise<Result>): Promise<Result> {
    try {
      return await order;
    } catch (error) {
      this.#context.lanes.doubt(lane);
      throw error;
    }
  }
}

function splitPair(pair: string): [string, string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}

function withoutUndefined<Value extends object>(
  value: Value,
): { [Key in keyof Value]: Exclude<Value[Key], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => item !== undefined)) as never;
}

/** Names and values that the kernel would refuse, refused by name. */
export function checkEnvironment(env: Readonly<Record<string, string | null | undefined>>): void {
  for (const [name, value] of Object.entries(env)) {
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
      const message = `"${name}" cannot be the name of an environment variable: letters, digits and "_", not beginning with a digit.`;
      throw new PlatformError('invalid_request', message, { details: { path: `env.${name}` } });
    }
    if (value?.includes('\0')) {
      throw new PlatformError('invalid_request', `The value of ${name} has a NUL byte.`, {
        details: { path: `env.${name}` },
      });
    }
  }
}
