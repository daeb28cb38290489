/**
 * Creates sandboxes: recorded with their name, made on a node, and only then running. Under an idempotency key one sandbox
 * comes of it, whenever the server dies.
 */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  type NodeId,
  newId,
  PlatformError,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { CheckpointRecord, SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { ControlContext } from './context.ts';
import { checkMetadata, dropEmpty } from './metadata-rules.ts';
import type { Mutations, Operation } from './mutations.ts';
import type { Lane } from './sandbox-lanes.ts';
import { promisesNoChange, type SandboxRecords, settingsOf } from './sandbox-records.ts';
import type { TeamDisk } from './team-disk.ts';
import { takeAttachments, tellAttached } from './workspaces/attached-files.ts';
import type { CreationAttachments } from './workspaces/creation-attachments.ts';

export interface Created {
  readonly view: SandboxView;
  /** False: a sandbox with the name was there. */
  readonly created: boolean;
}

const defaultTemplate = 'host';

type CreateBody = BodyOf<typeof routes.createSandbox>;

interface CreationParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly checkpoints: Checkpoints;
  readonly disk: TeamDisk;
  readonly attaching: CreationAttachments;
  /** Of a sandbox that cannot be what was asked for. */
  readonly discard: (caller: Caller, sandboxId: SandboxId) => Promise<void>;
}

export class SandboxCreation {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #mutations: Mutations;
  readonly #checkpoints: Checkpoints;
  readonly #disk: TeamDisk;
  readonly #attaching: CreationAttachments;
  readonly #discard: CreationParts['discard'];

  constructor(context: ControlContext, parts: CreationParts) {
    this.#context = context;
    this.#records = parts.records;
    this.#mutations = parts.mutations;
    this.#checkpoints = parts.checkpoints;
    this.#disk = parts.disk;
    this.#attaching = parts.attaching;
    this.#discard = parts.discard;
  }

  async create(caller: Caller, conditions: Conditions, body: CreateBody): Promise<Created> {
    checkMetadata(body.metadata ?? {});
    checkEnvironment(body.env ?? {});
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

  /** For one of many that are made under one key: what the record and the node have is the answer, what is missing is made. */
  createOnce(caller: Caller, body: CreateBody, operation: Operation): Promise<Created> {
    return this.#resumeCreate(caller, body, operation);
  }

  async #createOrGet(caller: Caller, body: CreateBody, operation: Operation): Promise<Created> {
    const sandboxId = operation.subjectId as SandboxId;
    for (;;) {
      if (body.name !== undefined && body.ifExists === 'get') {
        const existing = await this.#waitForNamed(caller, body.name);
        if (existing !== undefined) return { view: await this.#records.view(existing), created: false };
      }
      try {
        const record = await this.#attaching.around(caller, body, (made, nodeId) =>
          this.#context.lanes.run(sandboxId, (lane) =>
            this.#fromSource(caller, made, (source) =>
              this.#createInLane(lane, caller, made, { operation, source, nodeId }),
            ),
          ),
        );
        await this.#attachRest(caller, body, sandboxId);
        return { view: await this.#records.view(record), created: true };
      } catch (error) {
        // Somebody was faster with the name: theirs is the answer.
        if (isPlatformError(error, 'name_taken') && body.ifExists === 'get') continue;
        throw error;
      }
    }
  }

  /** All of its workspaces, or no sandbox. */
  async #attachRest(caller: Caller, body: CreateBody, sandboxId: SandboxId): Promise<void> {
    try {
      await this.#attaching.finish(caller, sandboxId, body);
    } catch (error) {
      await this.#discard(caller, sandboxId);
      throw error;
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

  /** The checkpoint that it is to begin with is there until it is made. */
  #fromSource<Result>(
    caller: Caller,
    body: CreateBody,
    work: (source: CheckpointRecord | undefined) => Promise<Result>,
  ): Promise<Result> {
    const { checkpoint, template } = body;
    if (checkpoint === undefined) return work(undefined);
    return this.#checkpoints.using(caller, checkpoint, async (source) => {
      if (template !== undefined && template !== source.spec.template) {
        const message = `The checkpoint is of the template "${source.spec.template}", and only fits that.`;
        throw new PlatformError('invalid_request', message, { details: { path: 'template' } });
      }
      return await work(source);
    });
  }

  async #createInLane(
    lane: Lane,
    caller: Caller,
    body: CreateBody,
    how: { operation: Operation; source: CheckpointRecord | undefined; nodeId: NodeId | undefined },
  ): Promise<SandboxRecord> {
    const { operation, source } = how;
    const { store, clock, settings, nodes, faults } = this.#context;
    const nowMs = clock.nowMs();
    const limits = { ...(source?.spec.limits ?? settings.defaultLimits), ...withoutUndefined(body.limits) };
    await this.#disk.admit(caller.teamId, limits.diskBytes ?? 0);
    const record: SandboxRecord = {
      id: lane.sandboxId,
      teamId: caller.teamId,
      // Files lie where they were made.
      nodeId: source?.nodeId ?? how.nodeId ?? nodes.choose(),
      name: body.name ?? null,
      spec: {
        template: body.template ?? source?.spec.template ?? defaultTemplate,
        limits,
        env: body.env ?? source?.spec.env ?? {},
        noNewPrivileges: body.noNewPrivileges ?? source?.spec.noNewPrivileges ?? false,
      },
      state: { kind: 'creating', untilMs: nowMs + settings.transitionMs, ...(source && { from: source.id }) },
      generation: 1,
      version: 1,
      metadata: body.metadata === undefined ? (source?.metadata ?? {}) : dropEmpty(body.metadata),
      metadataVersion: 1,
      expiresAtMs: body.expiresInMs === null ? null : nowMs + body.expiresInMs,
      leaseToken: 0,
      leaseHeld: false,
      network: body.network ?? source?.network ?? settings.defaultNetwork,
      onExpiry: body.onExpiry,
      autoResume: body.autoResume,
      keepCheckpoints: body.keepCheckpoints,
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
      if (source !== undefined) await takeAttachments(tables, record, source, caller.keyId);
    });
    await faults.hit('after-store-creating');
    return await this.#makeOnNode(lane, record, { operation, isRepeat: false });
  }

  async #makeOnNode(
    lane: Lane,
    record: SandboxRecord,
    how: { operation: Operation; isRepeat: boolean },
  ): Promise<SandboxRecord> {
    const { operation, isRepeat } = how;
    const { nodes, faults, clock } = this.#context;
    const change = { by: record.createdBy, atMs: record.createdAtMs, operationId: operation.id };
    const order = {
      sandboxId: record.id,
      generation: record.generation,
      version: record.version,
      fromCheckpoint: record.state.kind === 'creating' ? (record.state.from ?? null) : null,
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
      // Nothing is left on the node: the record and its name go too. In a repeat a node that is out of reach promises
      // nothing about the first attempt, so there the record stays.
      const isNowhere = promisesNoChange(error) && !(isRepeat && error.retry === 'backoff');
      if (isNowhere) await this.#context.store.transact((tables) => tables.sandboxes.remove(record.id));
      else this.#context.lanes.doubt(lane);
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
    return await this.#records.commitAfterNode(lane, {
      record: created,
      events: [{ kind: 'sandbox.created' }],
      also: async (tables) => {
        await tables.history.append(history);
        await tellAttached(tables, created);
      },
    });
  }

  /** After a crash: what the record and the node already have is the answer; what is missing is made. */
  async #resumeCreate(caller: Caller, body: CreateBody, operation: Operation): Promise<Created> {
    const sandboxId = operation.subjectId as SandboxId;
    if ((await this.#records.find(sandboxId)) === undefined) {
      await this.#checkNeverLived(caller, sandboxId, operation);
      return await this.#createOrGet(caller, body, operation);
    }
    const record = await this.#context.lanes.run(sandboxId, async (lane) => {
      const current = await this.#records.get(caller, sandboxId);
      if (current.state.kind === 'creating') {
        return await this.#makeOnNode(lane, current, { operation, isRepeat: true });
      }
      if (current.state.kind === 'failed' || current.state.kind === 'deleting') throw notUsable(current);
      return current;
    });
    await this.#attachRest(caller, body, sandboxId);
    return { view: await this.#records.view(record), created: true };
  }

  /** An id is used once: one that was made and deleted since is not made again. */
  async #checkNeverLived(caller: Caller, sandboxId: SandboxId, operation: Operation): Promise<void> {
    const { teamId } = caller;
    const lived = await this.#context.store.read((tables) =>
      tables.events.list({ teamId, sandboxId, after: 0, limit: 1 }),
    );
    if (lived.length === 0) return;
    const message = 'The sandbox was made before the interruption, and is gone since.';
    throw new PlatformError('operation_in_doubt', message, { details: { operationId: operation.id, sandboxId } });
  }
}

function notUsable(record: SandboxRecord): PlatformError {
  const details = { sandboxId: record.id, state: record.state.kind };
  return new PlatformError('sandbox_wrong_state', `The sandbox that was begun is ${record.state.kind}.`, { details });
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
