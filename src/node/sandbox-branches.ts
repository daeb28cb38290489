/**
 * Branches of files on a node: checkpoints, restore in place, and sandboxes that stand still.
 *
 * Invariants:
 *  - The record says `paused` exactly when the commands are to stand still: it is written after they do, and before they move again. Whatever
 *    is found frozen otherwise was cut short, and goes on when the node starts.
 *  - A restore has its new files before it ends anything, and the earlier files are discarded when the record names the new ones.
 */
import type { Clock, FaultPoints, Logger, Timers } from '../base/index.ts';
import {
  type CheckpointId,
  type CheckpointOrder,
  type DiskUsage,
  type LifeOrder,
  type NodeBranches,
  type NodeCheckpoint,
  type NodeEvent,
  type NodeSandbox,
  type PauseOrder,
  PlatformError,
  type RestoreOrder,
  type ResumeOrder,
  type SandboxId,
  type StorageDescription,
  type WritableId,
} from '../protocol/index.ts';
import { checkpointView } from './checkpoint-records.ts';
import { deadlineOf } from './deadline.ts';
import { asDiskFull } from './disk-full.ts';
import { ExpiryPauses, isToBePaused } from './expiry-pauses.ts';
import type { FrozenCommands } from './frozen-commands.ts';
import { type NodeRecord, viewOf } from './node-record.ts';
import { admitCheckpoint, decideChangeOfPace, decideRestore, refuseOlderLife } from './order-rules.ts';
import type { FoundSandbox as Sandbox } from './recovery.ts';
import { writeNamesInside } from './sandbox-names.ts';
import type { SandboxStorage } from './sandbox-storage.ts';
import type { Foundation } from './templates/sandbox-templates.ts';

export interface SandboxBranchesParts {
  readonly storage: SandboxStorage;
  readonly frozen: FrozenCommands;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly faults: FaultPoints;
  readonly log: Logger;
  readonly publish: (event: NodeEvent) => void;
  /** What a checkpoint's files stand on, held until it is released. */
  readonly foundationOf: (checkpointId: CheckpointId) => Promise<Foundation>;
  readonly get: (sandboxId: SandboxId) => Sandbox;
  /** Runs the task while it holds the sandbox's lock. */
  readonly change: <Result>(order: { readonly sandboxId: SandboxId }, task: () => Promise<Result>) => Promise<Result>;
  readonly inBackground: (work: Promise<void>) => void;
  /** These hold the sandbox's lock already. */
  readonly apply: (sandbox: Sandbox, next: NodeRecord) => Promise<void>;
  readonly begin: (sandbox: Sandbox, next: NodeRecord) => Promise<void>;
  readonly end: (sandbox: Sandbox) => Promise<void>;
  readonly startCommand: (sandbox: Sandbox) => Promise<void>;
}

export class SandboxBranches implements NodeBranches {
  readonly #parts: SandboxBranchesParts;
  readonly expiries: ExpiryPauses;

  constructor(parts: SandboxBranchesParts) {
    this.#parts = parts;
    this.expiries = new ExpiryPauses({
      ...parts,
      onDue: (sandboxId) => parts.inBackground(parts.change({ sandboxId }, () => this.#expireLocked(sandboxId))),
    });
  }

  describeStorage(): Promise<StorageDescription> {
    return this.#parts.storage.describe();
  }

  checkpoint(order: CheckpointOrder): Promise<NodeCheckpoint> {
    const { storage, change, get } = this.#parts;
    return change(order, async () => {
      const sandbox = get(order.sandboxId);
      const known = storage.checkpoints.find(order.checkpointId);
      if (known !== undefined) return this.#repeat(order, checkpointView(known));
      admitCheckpoint(sandbox.record, order);
      return await this.#checkpointLocked(sandbox.record, order);
    });
  }

  async findCheckpoint(checkpointId: CheckpointId): Promise<NodeCheckpoint | undefined> {
    const record = this.#parts.storage.checkpoints.find(checkpointId);
    return record && checkpointView(record);
  }

  async listCheckpoints(): Promise<readonly NodeCheckpoint[]> {
    return this.#parts.storage.checkpoints.list().map(checkpointView);
  }

  async removeCheckpoint(checkpointId: CheckpointId): Promise<void> {
    await this.#parts.storage.removeCheckpoint(checkpointId);
  }

  restore(order: RestoreOrder): Promise<NodeSandbox> {
    const { change, get } = this.#parts;
    return change(order, async () => {
      const sandbox = get(order.sandboxId);
      if (decideRestore(sandbox.record, order) === 'repeat') return viewOf(sandbox.record);
      await this.#restoreLocked(sandbox, order);
      await this.#parts.startCommand(sandbox);
      return viewOf(sandbox.record);
    });
  }

  pause(order: PauseOrder): Promise<NodeSandbox> {
    const { change, get, clock } = this.#parts;
    return change(order, async () => {
      const sandbox = get(order.sandboxId);
      const { record } = sandbox;
      if (decideChangeOfPace(record, order, 'paused') === 'repeat') return viewOf(record);
      const { version, settings } = order;
      const atMs = record.life.kind === 'paused' ? record.life.atMs : clock.nowMs();
      await this.#pauseLocked(sandbox, {
        ...record,
        version,
        settings,
        deadlineBootMs: 0,
        life: { kind: 'paused', atMs },
      });
      return viewOf(sandbox.record);
    });
  }

  resume(order: ResumeOrder): Promise<NodeSandbox> {
    const { change, get, clock, apply, frozen, faults } = this.#parts;
    return change(order, async () => {
      const sandbox = get(order.sandboxId);
      const { record } = sandbox;
      if (decideChangeOfPace(record, order, 'running') === 'repeat') return viewOf(record);
      const { version, settings } = order;
      const deadlineBootMs = deadlineOf(settings, clock);
      await apply(sandbox, { ...record, version, settings, deadlineBootMs, life: { kind: 'running' } });
      await faults.hit('node-resume-before-thaw');
      await frozen.thaw(order.sandboxId);
      await faults.hit('node-resume-before-answer');
      return viewOf(sandbox.record);
    });
  }

  async usage(order: LifeOrder): Promise<DiskUsage> {
    const { record } = this.#parts.get(order.sandboxId);
    refuseOlderLife(record, order);
    return await this.#parts.storage.usageOf(record.writable);
  }

  #repeat(order: CheckpointOrder, known: NodeCheckpoint): NodeCheckpoint {
    if (known.sandboxId === order.sandboxId && known.generation === order.generation) return known;
    throw new PlatformError('invalid_request', `${order.checkpointId} is a checkpoint of another life.`);
  }

  async #checkpointLocked(record: NodeRecord, order: CheckpointOrder): Promise<NodeCheckpoint> {
    const { storage, frozen, clock, faults } = this.#parts;
    const { sandboxId } = record.mark;
    const kept = await storage.keep(order.checkpointId, {
      writable: record.writable,
      take: async (freeze) => {
        const take = async () => {
          await faults.hit('node-checkpoint-frozen');
          await freeze(record.life.kind !== 'ended');
          return clock.nowMs();
        };
        const { result: createdAtMs, frozenMs } =
          record.life.kind === 'running'
            ? await frozen.whileFrozen(sandboxId, take)
            : { result: await take(), frozenMs: 0 };
        return {
          ...{ checkpointId: order.checkpointId, sandboxId, generation: record.generation, spec: record.spec },
          metadata: record.settings.metadata,
          metadataVersion: record.settings.metadataVersion,
          templateId: record.layers.join('+'),
          ...(record.template !== undefined && { template: record.template }),
          ...{ createdAtMs, frozenMs },
        };
      },
    });
    await faults.hit('node-checkpoint-before-answer');
    return checkpointView(kept);
  }

  async #restoreLocked(sandbox: Sandbox, order: RestoreOrder): Promise<void> {
    const { storage, faults, foundationOf } = this.#parts;
    const { record } = sandbox;
    const foundation = await foundationOf(order.checkpointId);
    try {
      const limits = { base: foundation.base, limitBytes: record.spec.limits.diskBytes };
      const writable = await storage.openFrom(order.checkpointId, limits);
      try {
        await faults.hit('node-restore-opened');
        await this.#replaceLocked(sandbox, order, { writable: writable.id, foundation });
      } catch (error) {
        await this.#discard(writable.id);
        throw error;
      }
    } finally {
      foundation.release();
    }
    await faults.hit('node-restore-before-discard');
    await this.#discard(record.writable);
    await faults.hit('node-restore-before-answer');
  }

  /** Ends the life that is there and begins the next on other files. */
  async #replaceLocked(
    sandbox: Sandbox,
    order: RestoreOrder,
    { writable, foundation }: { readonly writable: WritableId; readonly foundation: Foundation },
  ): Promise<void> {
    const { clock, faults, storage, begin, end, log } = this.#parts;
    const { sandboxId, generation, version, settings } = order;
    const { layers, usrLayers, template } = foundation;
    const { template: _earlier, ...kept } = sandbox.record;
    const endsLife = sandbox.client !== undefined;
    if (endsLife) await end(sandbox);
    try {
      await faults.hit('node-restore-ended');
      await begin(sandbox, {
        ...kept,
        ...{ generation, version, settings, writable, layers, usrLayers },
        ...(template !== undefined && { template }),
        deadlineBootMs: deadlineOf(settings, clock),
        bootId: clock.bootId,
        life: { kind: 'running' },
      });
    } catch (error) {
      throw endsLife ? withEndedLife(error) : error;
    }
    if (storage.checkpoints.find(order.checkpointId)?.sandboxId === sandboxId) return;
    await writeNamesInside(sandbox.client!, sandboxId, settings.leaseToken).catch((error: unknown) => {
      log.info('A sandbox keeps the names that its checkpoint had.', { sandboxId, error });
    });
  }

  async #pauseLocked(sandbox: Sandbox, next: NodeRecord): Promise<void> {
    const { frozen, faults, apply } = this.#parts;
    const { sandboxId } = next.mark;
    const wasRunning = sandbox.record.life.kind === 'running';
    if (wasRunning) await frozen.freeze(sandboxId);
    try {
      await faults.hit('node-pause-frozen');
      await apply(sandbox, next);
    } catch (error) {
      if (wasRunning) await frozen.thaw(sandboxId);
      throw error;
    }
    await faults.hit('node-pause-before-answer');
  }

  /** Its version stays: nobody ordered this. */
  async #expireLocked(sandboxId: SandboxId): Promise<void> {
    const { clock, get, publish } = this.#parts;
    const sandbox = get(sandboxId);
    const { record } = sandbox;
    if (!isToBePaused(record) || record.deadlineBootMs > clock.bootMs()) return this.expiries.follow(record);
    const atMs = clock.nowMs();
    await this.#pauseLocked(sandbox, { ...record, deadlineBootMs: 0, life: { kind: 'paused', atMs } });
    publish({ kind: 'paused', sandboxId, generation: record.generation, atMs });
  }

  async #discard(id: WritableId): Promise<void> {
    await this.#parts.storage.discard(id).catch((error: unknown) => {
      this.#parts.log.warn('Files that nobody needs are left until the node starts again.', { id, error });
    });
  }
}

function withEndedLife(cause: unknown): unknown {
  const outcome = 'the earlier life has ended, and its files are as they were';
  const error = asDiskFull(cause, outcome);
  if (!(error instanceof PlatformError)) return error;
  const message = error.message.includes(outcome) ? error.message : `${error.message} Meanwhile ${outcome}.`;
  return new PlatformError(error.code, message, { details: { ...error.details, state: 'stopped' }, cause: error });
}
