/**
 * Brings checkpoints and their nodes together, and removes what is past its time: in a loop, and with every round of reconcile. Each step is
 * decided anew under the checkpoint's lock, whatever the list said.
 */
import type { CheckpointId, NodeId } from '../protocol/index.ts';
import type { CheckpointRecord } from '../store/index.ts';
import type { Checkpoints } from './checkpoints.ts';
import type { ControlContext } from './context.ts';
import { type CheckpointAction, type CheckpointReport, reconcileCheckpoints } from './reconcile-checkpoints.ts';

const pageSize = 1_000;

export class Retention {
  readonly #context: ControlContext;
  readonly #checkpoints: Checkpoints;

  constructor(context: ControlContext, parts: { checkpoints: Checkpoints }) {
    this.#context = context;
    this.#checkpoints = parts.checkpoints;
  }

  async run(options: { readonly dryRun: boolean }): Promise<CheckpointAction[]> {
    const { clock, settings, nodes } = this.#context;
    const reports = await Promise.all(nodes.ids().map((nodeId) => this.#report(nodeId)));
    // Records after reports: one that was made in between is missing from neither.
    const records = await this.#records();
    const { youngMs, transitionMs } = settings;
    const actions = reconcileCheckpoints({ records, reports, nowMs: clock.nowMs(), youngMs, transitionMs });
    if (!options.dryRun) for (const action of actions) await this.#carryOut(action);
    return actions;
  }

  async #carryOut({ kind, checkpointId, nodeId }: CheckpointAction): Promise<void> {
    try {
      if (kind === 'remove-checkpoint') await this.#removeUnknown(checkpointId, nodeId);
      else if (kind === 'expire-checkpoint') await this.#checkpoints.remove(checkpointId);
      else await this.#checkpoints.settled(checkpointId);
    } catch (error) {
      this.#context.logger.warn('a checkpoint could not be settled', { checkpointId, action: kind, error });
    }
  }

  async #removeUnknown(checkpointId: CheckpointId, nodeId: NodeId): Promise<void> {
    const { store, nodes } = this.#context;
    const found = await store.read((tables) => tables.checkpoints.find(checkpointId));
    if (found === undefined) await nodes.call(nodeId, (node) => node.branches.removeCheckpoint(checkpointId));
  }

  async #records(): Promise<CheckpointRecord[]> {
    return await this.#context.store.read(async (tables) => {
      const records: CheckpointRecord[] = [];
      for (;;) {
        const last = records.at(-1);
        const page = await tables.checkpoints.list({}, { limit: pageSize, ...(last && { after: last }) });
        records.push(...page);
        if (page.length < pageSize) return records;
      }
    });
  }

  async #report(nodeId: NodeId): Promise<CheckpointReport> {
    try {
      return { nodeId, checkpoints: await this.#context.nodes.call(nodeId, (node) => node.branches.listCheckpoints()) };
    } catch (error) {
      this.#context.logger.warn('a node does not tell its checkpoints', { nodeId, error });
      return { nodeId, checkpoints: undefined };
    }
  }
}
