/**
 * Checkpoints that hold a template with workspaces in place, so that a sandbox with workspaces is created as quickly as one from a checkpoint: the
 * first of its kind is written into a hidden sandbox and kept, later ones begin with its files.
 *
 * Invariants:
 *  - An entry's checkpoint holds exactly what its key names. One that is lost, or does not fit any more, goes with its entry.
 *  - It only ever makes a create quicker: whatever fails here, the caller goes the long way.
 */
import { createHash } from 'node:crypto';
import { KeyedMutex } from '../../base/index.ts';
import {
  type CheckpointId,
  isPlatformError,
  type NodeId,
  newId,
  type SandboxSpec,
  type TeamId,
  type WorkspaceId,
} from '../../protocol/index.ts';
import type { AttachCacheRecord, CheckpointAttachment, SandboxRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { Checkpoints } from '../checkpoints.ts';
import type { ControlContext } from '../context.ts';
import type { HiddenSandboxes } from '../hidden-sandboxes.ts';
import { canonicalJson } from '../mutations.ts';
import { placeCheckout } from './checkout-placement.ts';

/** Entries that are kept; the least recently used go. */
export const attachCacheMax = 64;
/** How exactly the last use is known: each note of it is a commit. */
const noteMs = 60_000;
/** How long a checkpoint without an entry is kept. */
const leftOverMs = 10 * 60_000;

export interface CacheWanted {
  readonly nodeId: NodeId;
  readonly spec: SandboxSpec;
  /** What they are to be made from. */
  readonly attachments: readonly Omit<CheckpointAttachment, 'baseline'>[];
}

interface CacheParts {
  readonly checkpoints: Checkpoints;
  readonly hidden: HiddenSandboxes;
}

export class AttachCache {
  readonly #context: ControlContext;
  readonly #parts: CacheParts;
  /** Guards one entry. After the attachments of a sandbox, before lanes and the lock of its checkpoint. */
  readonly #entryLock = new KeyedMutex<string>({ name: 'kept place', rank: 0.8 });

  constructor(context: ControlContext, parts: CacheParts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** The checkpoint to begin with, made if it is not there; undefined: there is none, for a reason that is logged. */
  async find(caller: Caller, wanted: CacheWanted): Promise<{ key: string; checkpointId: CheckpointId } | undefined> {
    try {
      const key = await this.#keyOf(caller, wanted);
      const checkpointId = await this.#entryLock.run(key, async () => {
        const known = await this.#usable(key);
        return known ?? (await this.#make(caller, key, wanted));
      });
      return { key, checkpointId };
    } catch (error) {
      // What is wrong with the request itself is told on the long way too.
      this.#context.logger.warn('workspaces could not be kept in place', { error });
      return undefined;
    }
  }

  /** Its checkpoint does not fit: it is made anew the next time. */
  async drop(key: string): Promise<void> {
    await this.#entryLock.run(key, () => this.#drop(key));
  }

  /** The workspace goes away: nothing is to be made with it any more. */
  async forgetWorkspace(workspaceId: WorkspaceId): Promise<void> {
    const all = await this.#context.store.read((tables) => tables.workspaces.listAttachCache(Number.MAX_SAFE_INTEGER));
    for (const { key, baselines } of all) if (Object.hasOwn(baselines, workspaceId)) await this.drop(key);
  }

  /** Down to the bound; those that are in use now stay until the next time. */
  async trim(keep: number = attachCacheMax): Promise<void> {
    const all = await this.#context.store.read((tables) => tables.workspaces.listAttachCache(Number.MAX_SAFE_INTEGER));
    for (const { key } of all.slice(0, Math.max(0, all.length - keep))) await this.drop(key);
  }

  async #usable(key: string): Promise<CheckpointId | undefined> {
    const { store, clock } = this.#context;
    const found = await store.read(async (tables) => {
      const entry = await tables.workspaces.findAttachCache(key);
      const checkpoint = entry && (await tables.checkpoints.find(entry.checkpointId));
      return entry && { entry, isReady: checkpoint?.state === 'ready' };
    });
    if (found === undefined) return undefined;
    if (!found.isReady) {
      await this.#drop(key);
      return undefined;
    }
    const { entry } = found;
    const usedAtMs = clock.nowMs();
    if (usedAtMs - entry.usedAtMs > noteMs) {
      await store.transact((tables) => tables.workspaces.putAttachCache({ ...entry, usedAtMs }));
    }
    return entry.checkpointId;
  }

  async #make(caller: Caller, key: string, wanted: CacheWanted): Promise<CheckpointId> {
    const { store, clock, faults, random } = this.#context;
    const { nodeId, spec } = wanted;
    const { teamId, keyId: createdBy } = caller;
    const id = newId('checkpoint', random);
    const source = { teamId, nodeId, spec, fromCheckpoint: null, createdBy };
    const { checkpoint, baselines } = await this.#parts.hidden.run(source, async (sandbox) => {
      const attachments = await this.#fill(sandbox, wanted, id);
      const checkpoint = await this.#parts.checkpoints.takeOfHidden(sandbox, {
        ...{ id, name: null, isHidden: true, leaseToken: null, createdBy, attachments },
        // Until an entry leads to it: one that a crash leaves goes by itself.
        expiresAtMs: clock.nowMs() + leftOverMs,
      });
      const baselines = Object.fromEntries(attachments.map((one) => [one.workspaceId, one.baseline ?? '']));
      return { checkpoint, baselines };
    });
    await faults.hit('after-cache-checkpoint');
    const entry: AttachCacheRecord = {
      ...{ key, teamId, nodeId, checkpointId: checkpoint.id, baselines, usedAtMs: clock.nowMs() },
    };
    await store.transact(async (tables) => {
      await tables.workspaces.putAttachCache(entry);
      await tables.checkpoints.put({ ...checkpoint, expiresAtMs: null });
    });
    return checkpoint.id;
  }

  async #fill(sandbox: SandboxRecord, wanted: CacheWanted, id: CheckpointId): Promise<CheckpointAttachment[]> {
    const life = { sandboxId: sandbox.id, generation: sandbox.generation };
    return await this.#context.nodes.call(sandbox.nodeId, async (node) => {
      const filled: CheckpointAttachment[] = [];
      for (const attachment of wanted.attachments) {
        const { workspaceId, path, baseCommit: base } = attachment;
        await placeCheckout({ node, life, leaseToken: null, workspaceId, path }, base);
        await node.workspaces.recordBaseline({ workspaceId, life, path, base, baseline: id });
        filled.push({ ...attachment, baseline: id });
      }
      return filled;
    });
  }

  async #drop(key: string): Promise<void> {
    const { store, nodes, logger } = this.#context;
    const entry = await store.read((tables) => tables.workspaces.findAttachCache(key));
    if (entry === undefined) return;
    await store.transact((tables) => tables.workspaces.removeAttachCache(key));
    await this.#parts.checkpoints.remove(entry.checkpointId);
    for (const [workspaceId, baseline] of Object.entries(entry.baselines)) {
      const order = { workspaceId: workspaceId as WorkspaceId, baseline };
      await nodes
        .call(entry.nodeId, (node) => node.workspaces.forgetBaseline(order))
        .catch((error: unknown) => logger.warn('a baseline could not be forgotten', { ...order, error }));
    }
  }

  /** A name of a template may lead elsewhere tomorrow: what counts is what it leads to. */
  async #keyOf(caller: Caller, { nodeId, spec, attachments }: CacheWanted): Promise<string> {
    const templateId = await this.#templateOf(caller.teamId, nodeId, spec.template);
    const held = attachments
      .map(({ workspaceId, path, baseCommit }) => ({ workspaceId, path, baseCommit }))
      .sort((a, b) => (a.path < b.path ? -1 : 1));
    const named = { teamId: caller.teamId, nodeId, template: spec.template, templateId, held };
    return createHash('sha256').update(canonicalJson(named)).digest('hex');
  }

  async #templateOf(teamId: TeamId, nodeId: NodeId, name: string): Promise<string | null> {
    return await this.#context.nodes.call(nodeId, async (node) => {
      try {
        return (await node.templates.get({ teamId, name })).templateId;
      } catch (error) {
        // The machine's own is no template that was built; a checkpoint of it that does not fit any more is refused when it is used.
        if (isPlatformError(error, 'template_not_found')) return null;
        throw error;
      }
    });
  }
}
