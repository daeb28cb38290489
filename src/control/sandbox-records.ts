/**
 * Reading and changing the record of a sandbox. Every change goes through `commit` or `change`, inside the sandbox's lane, with
 * its events in the same transaction.
 *
 * `change` is the path for what both sides hold (metadata, deadline, network, lease): decide, apply on the node under the new
 * version, commit. The node keeps it as long as the life that it is about and refuses older, so if we die between the two, reconcile takes
 * the node's.
 */
import {
  type Conditions,
  isPlatformError,
  type NetworkPolicy,
  PlatformError,
  type SandboxId,
  type SandboxSettings,
  type SandboxState,
  type SandboxView,
  type TeamId,
} from '../protocol/index.ts';
import type { LeaseRecord, Readers, SandboxRecord, Tables } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { nextSandboxState, type SandboxEvent } from './lifecycle.ts';
import type { Lane } from './sandbox-lanes.ts';

export interface PendingEvent {
  readonly kind: string;
  readonly data?: Readonly<Record<string, unknown>>;
}

export interface Commit {
  /** With the new version. */
  readonly record: SandboxRecord;
  readonly events: readonly PendingEvent[];
  /** What else belongs to the same transaction. */
  readonly also?: (tables: Tables) => Promise<void>;
}

export interface SettingsUpdate {
  readonly metadata?: Readonly<Record<string, string>>;
  readonly expiresAtMs?: number | null;
  readonly leaseToken?: number;
  readonly leaseHeld?: boolean;
  readonly network?: NetworkPolicy;
  readonly onExpiry?: SandboxRecord['onExpiry'];
  readonly autoResume?: boolean;
  readonly keepCheckpoints?: number | null;
  /** Of one that is paused: the record's alone. */
  readonly state?: SandboxState;
  readonly by: string;
  readonly operationId: string | null;
  readonly events: readonly PendingEvent[];
  readonly also?: (tables: Tables) => Promise<void>;
}

export class SandboxRecords {
  readonly #context: ControlContext;
  #wake: (record: SandboxRecord) => Promise<SandboxRecord> = async (record) => record;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** The record, if it is the caller's to see. */
  async get(caller: Pick<Caller, 'teamId'>, sandboxId: SandboxId): Promise<SandboxRecord> {
    const record = await this.find(sandboxId);
    if (record === undefined || record.teamId !== caller.teamId) throw notFound(sandboxId);
    return record;
  }

  find(sandboxId: SandboxId): Promise<SandboxRecord | undefined> {
    return this.#context.store.findSandbox(sandboxId);
  }

  /** The record after an event of the table, not yet committed. */
  after(record: SandboxRecord, event: SandboxEvent): SandboxRecord {
    return this.withState(record, nextSandboxState(record.state, event));
  }

  withState(record: SandboxRecord, state: SandboxState): SandboxRecord {
    return { ...record, state, version: record.version + 1, updatedAtMs: this.#context.clock.nowMs() };
  }

  async commit(lane: Lane, change: Commit): Promise<SandboxRecord> {
    const { record } = change;
    if (record.id !== lane.sandboxId) throw new Error(`The lane of ${lane.sandboxId} does not guard ${record.id}.`);
    await this.#context.store.transact(async (tables) => {
      if (!(await tables.sandboxes.update(record))) throw this.#outrun(record);
      await appendEvents(tables, record, change.events);
      await change.also?.(tables);
    });
    this.#context.events.notify();
    return record;
  }

  /** Applies new settings on both sides, the node first. */
  async change(lane: Lane, record: SandboxRecord, update: SettingsUpdate): Promise<SandboxRecord> {
    const { nodes, faults, clock } = this.#context;
    const atMs = clock.nowMs();
    const next: SandboxRecord = {
      ...record,
      state: update.state ?? record.state,
      metadata: update.metadata ?? record.metadata,
      metadataVersion: record.metadataVersion + (update.metadata === undefined ? 0 : 1),
      expiresAtMs: update.expiresAtMs === undefined ? record.expiresAtMs : update.expiresAtMs,
      leaseToken: update.leaseToken ?? record.leaseToken,
      leaseHeld: update.leaseHeld ?? record.leaseHeld,
      network: update.network ?? record.network,
      onExpiry: update.onExpiry ?? record.onExpiry,
      autoResume: update.autoResume ?? record.autoResume,
      keepCheckpoints: update.keepCheckpoints === undefined ? record.keepCheckpoints : update.keepCheckpoints,
      version: record.version + 1,
      updatedAtMs: atMs,
    };
    const { events, also } = update;
    // No process is left: the node has the settings again when the next life begins.
    if (isFilesPaused(record)) return await this.commit(lane, { record: next, events, ...(also && { also }) });
    const settings = settingsOf(next, { by: update.by, atMs, operationId: update.operationId });
    const { sandboxId } = lane;
    await faults.hit('before-apply-settings');
    try {
      await nodes.call(record.nodeId, (node) =>
        node.applySettings({ sandboxId, generation: next.generation, version: next.version, settings }),
      );
    } catch (error) {
      const isOutrun = isPlatformError(error, 'version_mismatch');
      if (isOutrun || !promisesNoChange(error)) this.#context.lanes.doubt(lane);
      throw isOutrun ? inDoubt(error) : error;
    }
    await faults.hit('after-apply-settings');
    return await this.commitAfterNode(lane, { record: next, events, ...(also && { also }) });
  }

  /** Commits what the node already has. If that fails, whoever enters the lane next settles it first. */
  async commitAfterNode(lane: Lane, change: Commit): Promise<SandboxRecord> {
    try {
      return await this.commit(lane, change);
    } catch (error) {
      this.#context.lanes.doubt(lane);
      // Whatever the store said, "nothing was changed" would be wrong.
      throw inDoubt(error);
    }
  }

  /** Refuses what is meant for another life or version, or is done without the lease that somebody holds. */
  async check(record: SandboxRecord, conditions: Conditions): Promise<void> {
    checkGeneration(record, conditions);
    checkVersion(record, conditions);
    await this.checkLease(record, conditions);
  }

  async checkLease(record: SandboxRecord, conditions: Conditions): Promise<void> {
    const { leaseToken } = conditions;
    if (leaseToken !== undefined) {
      if (record.leaseHeld && leaseToken === record.leaseToken) return;
      const details = { currentToken: record.leaseToken, held: record.leaseHeld };
      throw new PlatformError('lease_lost', `Lease token ${leaseToken} is not the current one.`, { details });
    }
    if (!record.leaseHeld) return;
    const lease = await this.#context.store.read((tables) => findLease(tables, record));
    const holder = lease?.holder;
    const details = { holder: holder?.name ?? 'unknown', reason: holder?.reason ?? '', token: record.leaseToken };
    throw new PlatformError('lease_held', `"${details.holder}" holds a lease on ${record.id}.`, { details });
  }

  /** How a paused sandbox is resumed for traffic. */
  wakeWith(wake: (record: SandboxRecord) => Promise<SandboxRecord>): void {
    this.#wake = wake;
  }

  /** The record of a sandbox that runs; one that is paused is resumed first, where it is set to be. Waking it is an effect: it needs the lease. */
  async running(record: SandboxRecord, conditions: Conditions): Promise<SandboxRecord> {
    const { state } = record;
    if (state.kind === 'running') return record;
    const isAsleep = state.kind === 'pausing' || state.kind === 'paused' || state.kind === 'resuming';
    if (!isAsleep) throw notRunning(record);
    if (!record.autoResume) throw sandboxPaused(record);
    await this.checkLease(record, conditions);
    const woken = await this.#wake(record);
    if (woken.state.kind !== 'running') throw notRunning(woken);
    return woken;
  }

  /** The record of the life that is meant: of an earlier one nothing is found, and whoever names one hears that. */
  async inLife(caller: Caller, sandboxId: SandboxId, conditions: Conditions): Promise<SandboxRecord> {
    const record = await this.get(caller, sandboxId);
    checkGeneration(record, conditions);
    return record;
  }

  /** The record of the life that is meant, running. */
  async runningIn(caller: Caller, sandboxId: SandboxId, conditions: Conditions): Promise<SandboxRecord> {
    return await this.running(await this.inLife(caller, sandboxId, conditions), conditions);
  }

  /** The same, for whoever changes something in it: without the lease that somebody holds it is refused. */
  async openTo(caller: Caller, sandboxId: SandboxId, conditions: Conditions): Promise<SandboxRecord> {
    const record = await this.runningIn(caller, sandboxId, conditions);
    await this.checkLease(record, conditions);
    return record;
  }

  async view(record: SandboxRecord): Promise<SandboxView> {
    const lease = record.leaseHeld ? await this.#context.store.read((tables) => findLease(tables, record)) : undefined;
    return this.viewWith(record, lease);
  }

  viewWith(record: SandboxRecord, lease: LeaseRecord | undefined): SandboxView {
    const { state, spec } = record;
    const holder = lease?.holder;
    return {
      id: record.id,
      name: record.name,
      state: state.kind,
      reason: reasonOf(state),
      reachable: this.#context.nodes.isReachable(record.nodeId),
      generation: record.generation,
      version: record.version,
      template: spec.template,
      metadata: record.metadata,
      metadataVersion: record.metadataVersion,
      env: spec.env,
      limits: spec.limits,
      expiresAt: record.expiresAtMs === null ? null : new Date(record.expiresAtMs).toISOString(),
      network: record.network,
      paused: pausedView(state),
      onExpiry: record.onExpiry,
      autoResume: record.autoResume,
      keepCheckpoints: record.keepCheckpoints,
      lease:
        record.leaseHeld && holder !== undefined && holder !== null
          ? { holder: holder.name, reason: holder.reason, token: record.leaseToken }
          : null,
      nodeId: record.nodeId,
      createdAt: new Date(record.createdAtMs).toISOString(),
      createdBy: record.createdBy,
      userId: record.userId,
      updatedAt: new Date(record.updatedAtMs).toISOString(),
    };
  }

  #outrun(record: SandboxRecord): Error {
    return new Error(
      `The record of ${record.id} was changed outside its lane (version ${record.version} did not fit).`,
    );
  }
}

export async function appendEvents(
  tables: Tables,
  record: SandboxRecord,
  events: readonly PendingEvent[],
): Promise<void> {
  for (const event of events) {
    await tables.events.append({
      teamId: record.teamId,
      sandboxId: record.id,
      kind: event.kind,
      atMs: record.updatedAtMs,
      data: {
        state: record.state.kind,
        generation: record.generation,
        version: record.version,
        metadata: record.metadata,
        ...event.data,
      },
    });
  }
}

export function settingsOf(record: SandboxRecord, change: SandboxSettings['change']): SandboxSettings {
  return {
    metadata: record.metadata,
    metadataVersion: record.metadataVersion,
    expiresAtMs: record.expiresAtMs,
    leaseToken: record.leaseToken,
    leaseHeld: record.leaseHeld,
    network: record.network,
    onExpiry: record.onExpiry === 'pause' ? 'pause' : 'end',
    autoResume: record.autoResume,
    keepCheckpoints: record.keepCheckpoints,
    change,
  };
}

/** What a node's settings say about what a sandbox does by itself, as the record has it. */
export function automaticOf(settings: SandboxSettings) {
  const { onExpiry, autoResume, keepCheckpoints } = settings;
  return { onExpiry: onExpiry === 'pause' ? ('pause' as const) : ('stop' as const), autoResume, keepCheckpoints };
}

export function isFilesPaused({ state }: Pick<SandboxRecord, 'state'>): boolean {
  return state.kind === 'paused' && state.mode === 'files';
}

function pausedView(state: SandboxState): SandboxView['paused'] {
  if (state.kind !== 'paused') return null;
  return { mode: state.mode, since: new Date(state.atMs).toISOString(), leftMs: state.leftMs };
}

export function checkGeneration(record: SandboxRecord, conditions: Conditions): void {
  const { generation } = conditions;
  if (generation === undefined || generation === record.generation) return;
  const details = { generation: record.generation };
  const message = `This was meant for generation ${generation} of ${record.id}; it is in generation ${record.generation}.`;
  throw new PlatformError('stale_generation', message, { details });
}

export function checkVersion(record: SandboxRecord, conditions: Conditions): void {
  const { expectedVersion } = conditions;
  if (expectedVersion !== undefined && expectedVersion !== record.version) throw versionMismatch(record.version);
}

export function versionMismatch(version: number): PlatformError {
  return new PlatformError('version_mismatch', `The current version is ${version}.`, { details: { version } });
}

export function notFound(sandboxId: SandboxId): PlatformError {
  return new PlatformError('sandbox_not_found', `There is no sandbox ${sandboxId} in this team.`, {
    details: { sandboxId },
  });
}

export function notRunning(record: SandboxRecord): PlatformError {
  const details = { state: record.state.kind };
  return new PlatformError('sandbox_wrong_state', `Sandbox ${record.id} is ${record.state.kind}, not running.`, {
    details,
  });
}

function sandboxPaused(record: SandboxRecord): PlatformError {
  const details = { state: record.state.kind };
  const message = `Sandbox ${record.id} is ${record.state.kind}. Resume it, or set \`autoResume\` to have this done by traffic.`;
  return new PlatformError('sandbox_paused', message, { details });
}

export function inDoubt(cause: unknown): PlatformError {
  const message = 'Record and node disagree about the last change. It is being settled; look before you repeat it.';
  return new PlatformError('outcome_unknown', message, { cause });
}

function findLease(tables: Readers, record: { id: SandboxId; teamId: TeamId }): Promise<LeaseRecord | undefined> {
  return tables.leases.find({ teamId: record.teamId, resource: record.id });
}

function reasonOf(state: SandboxState): string | null {
  if (state.kind === 'stopping') return state.reason;
  if (state.kind === 'stopped') return state.note === undefined ? state.reason : `${state.reason}: ${state.note}`;
  if (state.kind === 'failed') return state.why;
  if (state.kind === 'paused') return state.note === undefined ? state.reason : `${state.reason}: ${state.note}`;
  return null;
}

/** Which life an operation is about; kept with its idempotency key. */
export function lifeOf(record: Pick<SandboxRecord, 'id' | 'generation'>): string {
  return `${record.id} ${record.generation}`;
}

/** For `Mutation.about`: the life that the sandbox is in when the key is journalled. */
export async function lifeIn(tables: Readers, sandboxId: SandboxId): Promise<string | null> {
  const record = await tables.sandboxes.find(sandboxId);
  return record === undefined ? null : lifeOf(record);
}

/** Whether a node's refusal tells that it did nothing. A bug in between tells nothing. */
export function promisesNoChange(error: unknown): error is PlatformError {
  return isPlatformError(error) && error.retry !== 'unknown' && error.code !== 'internal';
}
