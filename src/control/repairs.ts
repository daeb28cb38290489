/** The steps that bring a record and its node together; each runs in the sandbox's lane, on facts read there. */
import { assertNever } from '../base/index.ts';
import {
  isPlatformError,
  type KeyId,
  type NodeId,
  type NodeSandbox,
  type SandboxId,
  type SandboxState,
  type StateKind,
  type TeamId,
} from '../protocol/index.ts';
import type { MetadataChange, SandboxRecord } from '../store/index.ts';
import type { ControlContext } from './context.ts';
import { nextSandboxState, transitionDeadline } from './lifecycle.ts';
import type { Action } from './reconcile.ts';
import type { Lane } from './sandbox-lanes.ts';
import { type ChangeMark, deadlineAfter, type SandboxPauses } from './sandbox-pauses.ts';
import { appendEvents, automaticOf, type SandboxRecords } from './sandbox-records.ts';
import { restoreAttachments, type SandboxRestores } from './sandbox-restores.ts';
import { tellAttached } from './workspaces/attached-files.ts';

export interface RepairParts {
  readonly records: SandboxRecords;
  readonly pauses: SandboxPauses;
  readonly restores: SandboxRestores;
  readonly finishDelete: (lane: Lane, record: SandboxRecord) => Promise<void>;
  readonly releaseLease: (lane: Lane, record: SandboxRecord) => Promise<void>;
  /** The node knows of no lease that the record says is held, or of another one. */
  readonly leaseGone: (sandboxId: SandboxId) => void;
}

const stopGraceMs = 2_000;
const eventPage = 1_000;

export class Repairs {
  readonly #context: ControlContext;
  readonly #parts: RepairParts;

  constructor(context: ControlContext, parts: RepairParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async take(
    lane: Lane,
    action: Action,
    facts: { record: SandboxRecord; sandbox: NodeSandbox | undefined },
  ): Promise<void> {
    const { record, sandbox } = facts;
    switch (action.kind) {
      case 'confirm':
        return await this.#confirm(lane, record);
      case 'abandon':
        return await this.#abandon(lane, record, action.reason);
      case 'end':
      case 'lose':
        return await this.#end(lane, record, action, sandbox);
      case 'finish-stop':
        return await this.#finishStop(lane, record);
      case 'finish-pause':
        return await unlessRefused(this.#parts.pauses.finishPause(lane, record, repeat));
      case 'finish-resume':
        return await unlessRefused(this.#parts.pauses.finishResume(lane, record, repeat));
      case 'finish-restore':
        return await unlessRefused(this.#parts.restores.finishRestore(lane, record, repeat));
      case 'note-pause':
        return await this.#notePause(lane, record, sandbox);
      case 'finish-delete':
        return await this.#parts.finishDelete(lane, record);
      case 'take-settings':
        return await this.#takeSettings(lane, record, sandbox as NodeSandbox);
      case 'give-settings':
        return await this.fence(lane, record);
      case 'release-lease':
        return await this.#parts.releaseLease(lane, record);
      case 'find':
        return await this.#find(lane, record);
      case 'stop-on-node':
        return await this.#stopOnNode(record);
      case 'remove':
        return await this.#removeFromNode(record);
      case 'adopt':
      case 'discard':
      case 'quarantine':
        return; // Of sandboxes without a record.
      default:
        assertNever(action.kind);
    }
  }

  /** Applies the record's settings under a new version: whatever is on its way to the node is older now. */
  async fence(lane: Lane, record: SandboxRecord): Promise<void> {
    await this.#parts.records.change(lane, record, { by: 'reconcile', operationId: null, events: [] });
  }

  /** A record rebuilt from what the node has; not of one that we deleted, whose order to be made came late. */
  async adopt(lane: Lane, sandbox: NodeSandbox, nodeId: NodeId): Promise<void> {
    const { mark, settings, life } = sandbox;
    if (await this.#wasDeleted(lane.sandboxId, mark.teamId as TeamId)) {
      return await this.#removeFromNode({ id: lane.sandboxId, nodeId, generation: sandbox.generation });
    }
    const nowMs = this.#context.clock.nowMs();
    await this.#context.store.transact(async (tables) => {
      const teamId = mark.teamId as TeamId;
      const namesake = mark.name === null ? undefined : await tables.sandboxes.findByName({ teamId, name: mark.name });
      const record: SandboxRecord = {
        id: lane.sandboxId,
        teamId,
        nodeId,
        name: namesake === undefined ? mark.name : null,
        spec: sandbox.spec,
        state: life.kind === 'ended' ? { kind: 'stopped', reason: life.reason, atMs: life.atMs } : { kind: 'running' },
        generation: sandbox.generation,
        version: sandbox.version,
        metadata: settings.metadata,
        metadataVersion: settings.metadataVersion,
        expiresAtMs: settings.expiresAtMs,
        leaseToken: settings.leaseToken,
        leaseHeld: settings.leaseHeld,
        network: settings.network,
        ...automaticOf(settings),
        createdAtMs: mark.createdAtMs,
        createdBy: mark.createdBy as KeyId,
        userId: null,
        updatedAtMs: nowMs,
      };
      await tables.sandboxes.insert(record);
      await appendEvents(tables, record, [{ kind: 'sandbox.adopted' }]);
    });
    this.#context.events.notify();
  }

  /** As far back as events are kept. */
  async #wasDeleted(sandboxId: SandboxId, teamId: TeamId): Promise<boolean> {
    let after = 0;
    for (;;) {
      const page = { teamId, sandboxId, after, limit: eventPage };
      const found = await this.#context.store.read((tables) => tables.events.list(page));
      if (found.some((event) => event.kind === 'sandbox.deleted')) return true;
      if (found.length < eventPage) return false;
      after = found.at(-1)?.sequence ?? after;
    }
  }

  async #confirm(lane: Lane, record: SandboxRecord): Promise<void> {
    const isNew = record.state.kind === 'creating';
    const kind = confirmedKinds[record.state.kind] ?? 'sandbox.started';
    const confirmed = this.#parts.records.after(record, { kind: 'confirmed' });
    const change: MetadataChange = {
      sandboxId: record.id,
      metadataVersion: record.metadataVersion,
      atMs: confirmed.updatedAtMs,
      by: record.createdBy,
      operationId: null,
      changes: record.metadata,
    };
    await this.#parts.records.commit(lane, {
      record: confirmed,
      events: [{ kind, data: { by: 'reconcile' } }],
      also: async (tables) => {
        if (record.state.kind === 'restoring') await restoreAttachments(tables, record);
        if (!isNew) return;
        await tables.history.append(change);
        await tellAttached(tables, confirmed);
      },
    });
  }

  async #abandon(lane: Lane, record: SandboxRecord, why: string): Promise<void> {
    // The order may still be on its way: what it would make is removed when the node reports it.
    if (record.state.kind === 'creating') await this.#removeFromNode(record);
    const atMs = this.#context.clock.nowMs();
    const abandoned = this.#parts.records.after(record, { kind: 'refused', why, atMs });
    await this.#parts.records.commit(lane, { record: abandoned, events: [{ kind: 'sandbox.failed', data: { why } }] });
  }

  async #end(lane: Lane, record: SandboxRecord, action: Action, sandbox: NodeSandbox | undefined): Promise<void> {
    const reason = action.stopReason ?? 'lost';
    const atMs = sandbox?.life.kind === 'ended' ? sandbox.life.atMs : this.#context.clock.nowMs();
    const ended = this.#parts.records.after(record, { kind: 'gone', reason, atMs });
    await this.#parts.records.commit(lane, { record: ended, events: [{ kind: 'sandbox.stopped', data: { reason } }] });
  }

  /** A stop that cannot be finished, and is past its deadline, is given up: the sandbox runs, and says so. */
  async #finishStop(lane: Lane, record: SandboxRecord): Promise<void> {
    const { nodes, clock } = this.#context;
    const order = { sandboxId: record.id, generation: record.generation, graceMs: stopGraceMs };
    try {
      await nodes.call(record.nodeId, (node) => node.stopSandbox(order));
    } catch (error) {
      const isOverdue = (transitionDeadline(record.state) ?? 0) <= clock.nowMs();
      if (!isOverdue || !isPlatformError(error)) throw error;
      const stayed = this.#parts.records.after(record, { kind: 'stayed' });
      const data = { why: `It could not be stopped: ${error.message}` };
      await this.#parts.records.commit(lane, { record: stayed, events: [{ kind: 'sandbox.stop_failed', data }] });
      return;
    }
    const stopped = this.#parts.records.after(record, { kind: 'gone', reason: 'requested', atMs: clock.nowMs() });
    await this.#parts.records.commit(lane, {
      record: stopped,
      events: [{ kind: 'sandbox.stopped', data: { reason: 'requested' } }],
    });
  }

  /** The node has what we did not live to commit. */
  async #takeSettings(lane: Lane, record: SandboxRecord, sandbox: NodeSandbox): Promise<void> {
    const { settings } = sandbox;
    const last = Math.max(sandbox.version, record.version + 1);
    const { store, clock, events } = this.#context;
    const next: SandboxRecord = {
      ...record,
      state: stateOnNode(record, sandbox),
      generation: sandbox.generation,
      metadata: settings.metadata,
      metadataVersion: settings.metadataVersion,
      expiresAtMs: settings.expiresAtMs,
      leaseToken: settings.leaseToken,
      leaseHeld: settings.leaseHeld,
      network: settings.network,
      ...automaticOf(settings),
      updatedAtMs: clock.nowMs(),
    };
    const { by, atMs, operationId } = settings.change;
    const changes = differences(record.metadata, settings.metadata);
    await store.transact(async (tables) => {
      // Versions grow by one; the node may be ahead by more where the store was put back to an earlier day.
      for (let step = record.version + 1; step <= last; step++) {
        const isTaken = await tables.sandboxes.update({ ...next, version: step });
        if (!isTaken) throw new Error(`The record of ${lane.sandboxId} was changed outside its lane.`);
      }
      if (settings.metadataVersion !== record.metadataVersion) {
        await tables.history.append({
          sandboxId: record.id,
          metadataVersion: settings.metadataVersion,
          atMs,
          by,
          operationId,
          changes,
        });
        await tables.history.trim({ sandboxId: record.id, keep: this.#context.settings.historyKept });
      }
      const data = { by, ...(Object.keys(changes).length > 0 && { changes }) };
      await appendEvents(tables, { ...next, version: last }, [{ kind: 'sandbox.updated', data }]);
    });
    events.notify();
    const isAnotherLease = !settings.leaseHeld || settings.leaseToken !== record.leaseToken;
    if (record.leaseHeld && isAnotherLease) this.#parts.leaseGone(record.id);
  }

  /** At its deadline, or as was asked by somebody who did not live to record it. */
  async #notePause(lane: Lane, record: SandboxRecord, sandbox: NodeSandbox | undefined): Promise<void> {
    const life = sandbox?.life;
    const atMs = life !== undefined && 'atMs' in life ? life.atMs : this.#context.clock.nowMs();
    const reason = record.state.kind === 'pausing' ? 'requested' : 'expired';
    await this.#parts.pauses.recordPaused(lane, record, { atMs, reason });
  }

  async #find(lane: Lane, record: SandboxRecord): Promise<void> {
    const expiresAtMs = deadlineAfter(record, undefined, this.#context.clock.nowMs());
    const found = { ...this.#parts.records.after(record, { kind: 'found' }), expiresAtMs };
    await this.#parts.records.commit(lane, { record: found, events: [{ kind: 'sandbox.found' }] });
  }

  async #stopOnNode(record: SandboxRecord): Promise<void> {
    const order = { sandboxId: record.id, generation: record.generation, graceMs: stopGraceMs };
    await this.#context.nodes.call(record.nodeId, (node) => node.stopSandbox(order));
  }

  async #removeFromNode(record: Pick<SandboxRecord, 'id' | 'nodeId' | 'generation'>): Promise<void> {
    const order = { sandboxId: record.id, generation: record.generation };
    await this.#context.nodes.call(record.nodeId, (node) => node.deleteSandbox(order));
  }
}

/** By whom what was interrupted is finished. */
const repeat: ChangeMark = { by: 'reconcile', operationId: null, isRepeat: true };

const confirmedKinds: Partial<Record<StateKind, string>> = {
  creating: 'sandbox.created',
  resuming: 'sandbox.resumed',
  restoring: 'sandbox.restored',
};

/** A refusal is recorded by whoever was refused: the sandbox is settled, as it was before. */
async function unlessRefused(work: Promise<SandboxRecord>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!isPlatformError(error) || error.retry !== 'never' || error.code === 'internal') throw error;
  }
}

/** A stop or pause that the record tells of was of an earlier life, or version, than what the node runs. */
function stateOnNode(record: SandboxRecord, sandbox: NodeSandbox): SandboxState {
  const { state } = record;
  if (state.kind === 'paused' && sandbox.life.kind === 'running') return nextSandboxState(state, { kind: 'found' });
  if (sandbox.generation === record.generation || sandbox.life.kind === 'ended') return state;
  if (state.kind === 'stopped') return nextSandboxState(state, { kind: 'found' });
  if (state.kind === 'stopping') return nextSandboxState(state, { kind: 'stayed' });
  return state;
}

function differences(
  before: Readonly<Record<string, string>>,
  after: Readonly<Record<string, string>>,
): Record<string, string | null> {
  const changes = new Map<string, string | null>();
  for (const key of Object.keys(before)) if (!Object.hasOwn(after, key)) changes.set(key, null);
  for (const [key, value] of Object.entries(after)) if (before[key] !== value) changes.set(key, value);
  return Object.fromEntries(changes);
}
