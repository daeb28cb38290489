/** Sandboxes as callers see them: looked at here, made and changed by the parts it is given. */
import type {
  BodyOf,
  Conditions,
  QueryOf,
  ResultOf,
  routes,
  SandboxId,
  SandboxLoad,
  SandboxView,
} from '../protocol/index.ts';
import type { LeaseRecord, SandboxFilter } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { parseCursor, writeCursor } from './cursors.ts';
import type { MetadataService } from './metadata.ts';
import type { Created, SandboxCreation } from './sandbox-creation.ts';
import type { SandboxLives } from './sandbox-lives.ts';
import { notRunning, type SandboxRecords } from './sandbox-records.ts';

interface SandboxesParts {
  readonly records: SandboxRecords;
  readonly creation: SandboxCreation;
  readonly metadata: MetadataService;
  readonly lives: SandboxLives;
}

export interface LoadView extends SandboxLoad {
  readonly diskBytes: number;
  /** Its limit; without one, all that its machine has for sandboxes. */
  readonly diskTotalBytes: number;
}

export class Sandboxes {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #creation: SandboxCreation;
  readonly #metadata: MetadataService;
  readonly #lives: SandboxLives;

  constructor(context: ControlContext, parts: SandboxesParts) {
    this.#context = context;
    this.#records = parts.records;
    this.#creation = parts.creation;
    this.#metadata = parts.metadata;
    this.#lives = parts.lives;
  }

  create(caller: Caller, conditions: Conditions, body: BodyOf<typeof routes.createSandbox>): Promise<Created> {
    return this.#creation.create(caller, conditions, body);
  }

  async get(caller: Caller, sandboxId: SandboxId): Promise<SandboxView> {
    return await this.#records.view(await this.#records.get(caller, sandboxId));
  }

  /** What it takes of its machine now. Refuses one that does not run. */
  async load(caller: Caller, sandboxId: SandboxId): Promise<LoadView> {
    const record = await this.#records.get(caller, sandboxId);
    if (record.state.kind !== 'running') throw notRunning(record);
    const order = { sandboxId, generation: record.generation };
    return await this.#context.nodes.call(record.nodeId, async (node) => {
      const [load, disk, storage] = await Promise.all([
        node.load(order),
        node.branches.usage(order),
        node.branches.describeStorage(),
      ]);
      return { ...load, diskBytes: disk.bytes, diskTotalBytes: disk.limitBytes ?? storage.totalBytes };
    });
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
    const after = query.cursor === undefined ? undefined : parseCursor('sandbox', query.cursor);
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

  stop(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: BodyOf<typeof routes.stopSandbox>) {
    return this.#lives.stop(caller, sandboxId, conditions, body);
  }

  start(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: BodyOf<typeof routes.startSandbox>) {
    return this.#lives.start(caller, sandboxId, conditions, body);
  }

  delete(caller: Caller, sandboxId: SandboxId, conditions: Conditions, options: { force: boolean }): Promise<void> {
    return this.#lives.delete(caller, sandboxId, conditions, options);
  }
}

function splitPair(pair: string): [string, string] {
  const at = pair.indexOf('=');
  return [pair.slice(0, at), pair.slice(at + 1)];
}
