/**
 * Carries out what reconcile finds: in a loop, on request, when a node tells of an end, and before anything else enters the lane of a
 * sandbox in doubt. Whatever the list said, each step is decided anew inside the sandbox's lane from fresh facts.
 */
import { BackgroundLoop } from '../base/index.ts';
import {
  isPlatformError,
  type NodeId,
  type NodeSandbox,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import type { HiddenSandboxes } from './hidden-sandboxes.ts';
import { pause } from './pause.ts';
import { type Action, compare, type NodeReport, type ReconcileInput, reconcile } from './reconcile.ts';
import type { Repairs } from './repairs.ts';
import type { Retention } from './retention.ts';
import type { Lane } from './sandbox-lanes.ts';
import type { SandboxRecords } from './sandbox-records.ts';

/** A record that needs more steps than this is not settling; the next round tries again. */
const stepsMax = 8;
const pageSize = 1_000;
const settledAtOnce = 16;
const reconnectMs = 500;

export interface ReconcilerParts {
  readonly records: SandboxRecords;
  readonly repairs: Repairs;
  readonly retention: Retention;
  readonly isLeased: (sandboxId: SandboxId) => boolean;
  readonly hidden: HiddenSandboxes;
}

type Report = ResultOf<typeof routes.reconcile>;

export class Reconciler {
  readonly #context: ControlContext;
  readonly #parts: ReconcilerParts;
  readonly #loop: BackgroundLoop;
  readonly #closing = new AbortController();
  readonly #watching: Promise<void>[] = [];
  #actions = 0;
  #isFirstRoundDone = false;

  constructor(context: ControlContext, parts: ReconcilerParts) {
    this.#context = context;
    this.#parts = parts;
    context.lanes.settleWith((lane, options) => this.settle(lane, options));
    this.#loop = new BackgroundLoop({
      intervalMs: context.settings.reconcileIntervalMs,
      timers: context.timers,
      tick: async () => {
        await this.run('system', { dryRun: false });
        this.#isFirstRoundDone = true;
      },
      onError: (error) => context.logger.error('reconcile failed', { error }),
    });
  }

  start(): void {
    this.#loop.start();
    for (const nodeId of this.#context.nodes.ids()) this.#watching.push(this.#watch(nodeId));
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#loop.close();
    await Promise.all(this.#watching);
  }

  /** Whether records and nodes were compared since the start. */
  get isFirstRoundDone(): boolean {
    return this.#isFirstRoundDone;
  }

  get actionsTaken(): number {
    return this.#actions;
  }

  async run(_who: Caller | 'system', options: { dryRun: boolean }): Promise<Report> {
    const input = await this.#gather();
    const actions = reconcile(input);
    this.#markCompared(input, actions);
    if (!options.dryRun) await this.#carryOut(actions);
    const checkpoints = await this.#parts.retention.run(options);
    return {
      actions: actions.map(({ kind, sandboxId, nodeId, reason }) => ({ kind, sandboxId, nodeId, reason })),
      checkpoints,
      quarantined: input.reports.flatMap((report) =>
        report.quarantined.map((one) => ({ nodeId: report.nodeId, ...one })),
      ),
      unreachable: input.reports.filter((report) => report.sandboxes === undefined).map((report) => report.nodeId),
    };
  }

  /** Brings record and node of one sandbox together. */
  async settle(lane: Lane, options: { isInDoubt: boolean }): Promise<void> {
    for (let step = 0; step < stepsMax; step++) {
      const record = await this.#parts.records.find(lane.sandboxId);
      if (record === undefined) return;
      const sandbox = await this.#context.nodes.call(record.nodeId, (node) => node.findSandbox(record.id));
      const [action] = compare(record, sandbox, await this.#facts());
      if (action === undefined) {
        // A late message of the change that went wrong must find a newer version on the node.
        const { kind } = record.state;
        if (options.isInDoubt && (kind === 'running' || kind === 'paused'))
          await this.#parts.repairs.fence(lane, record);
        return;
      }
      await this.#take(lane, action, record, sandbox);
    }
  }

  /** Where there is nothing to do, the next who enters the lane need not look again. */
  #markCompared(input: ReconcileInput, actions: readonly Action[]): void {
    const differing = new Set(actions.map((action) => action.sandboxId));
    const reporting = new Set(
      input.reports.filter((report) => report.sandboxes !== undefined).map(({ nodeId }) => nodeId),
    );
    for (const { id, nodeId } of input.records) {
      if (reporting.has(nodeId) && !differing.has(id)) this.#context.lanes.markCompared(id);
    }
  }

  async #carryOut(actions: readonly Action[]): Promise<void> {
    const named = new Map(actions.map((action) => [action.sandboxId, action]));
    const waiting = [...named.values()];
    // Those in doubt too where both sides agree: what went wrong with them may still be on its way.
    const doubtful = this.#context.lanes.doubtful.filter((sandboxId) => !named.has(sandboxId));
    const work = async () => {
      for (let action = waiting.shift(); action !== undefined; action = waiting.shift()) await this.#settleOne(action);
      for (let id = doubtful.shift(); id !== undefined; id = doubtful.shift()) await this.#settleDoubt(id);
    };
    await Promise.all(Array.from({ length: settledAtOnce }, work));
  }

  async #settleOne(action: Action): Promise<void> {
    const { sandboxId, nodeId } = action;
    try {
      await this.#context.lanes.run(sandboxId, async (lane) => {
        if (action.kind === 'quarantine') return;
        if (action.kind === 'adopt') await this.#adopt(lane, nodeId);
        else if (action.kind === 'discard') await this.#parts.hidden.discard(sandboxId, nodeId);
        else await this.settle(lane, { isInDoubt: false });
      });
    } catch (error) {
      this.#context.logger.warn('a sandbox could not be settled', { sandboxId, action: action.kind, error });
    }
  }

  async #settleDoubt(sandboxId: SandboxId): Promise<void> {
    try {
      // Entering the lane is what settles it.
      await this.#context.lanes.run(sandboxId, async () => {});
    } catch (error) {
      this.#context.logger.warn('a sandbox stays in doubt', { sandboxId, error });
    }
  }

  async #adopt(lane: Lane, nodeId: NodeId): Promise<void> {
    if ((await this.#parts.records.find(lane.sandboxId)) !== undefined) return;
    const sandbox = await this.#context.nodes.call(nodeId, (node) => node.findSandbox(lane.sandboxId));
    if (sandbox !== undefined) await this.#parts.repairs.adopt(lane, sandbox, nodeId);
  }

  async #take(lane: Lane, action: Action, record: SandboxRecord, sandbox: NodeSandbox | undefined): Promise<void> {
    this.#actions++;
    this.#context.logger.info('reconcile', { action: action.kind, sandboxId: record.id, reason: action.reason });
    await this.#parts.repairs.take(lane, action, { record, sandbox });
  }

  async #facts(): Promise<Omit<ReconcileInput, 'records' | 'reports' | 'leased'> & { leased: ReadonlySet<string> }> {
    const { settings, clock } = this.#context;
    const leased = { has: (id: string) => this.#parts.isLeased(id as SandboxId) } as ReadonlySet<string>;
    const hidden = this.#parts.hidden.inUse;
    return { teams: new Set(), leased, hidden, nowMs: clock.nowMs(), youngMs: settings.youngMs };
  }

  async #gather(): Promise<ReconcileInput> {
    const { store, nodes } = this.#context;
    const reports = await Promise.all(nodes.ids().map((nodeId) => this.#report(nodeId)));
    // Records after reports: one that was made in between is missing from neither.
    const { records, teams } = await store.read(async (tables) => {
      const records: SandboxRecord[] = [];
      for (;;) {
        const last = records.at(-1);
        const page = await tables.sandboxes.list({}, { limit: pageSize, ...(last && { after: last }) });
        records.push(...page);
        if (page.length < pageSize) break;
      }
      return { records, teams: new Set((await tables.teams.list()).map((team) => team.id as string)) };
    });
    return { ...(await this.#facts()), records, reports, teams };
  }

  async #report(nodeId: NodeId): Promise<NodeReport> {
    try {
      const inventory = await this.#context.nodes.call(nodeId, (node) => node.inventory());
      this.#context.nodes.setReachable(nodeId, true);
      return { nodeId, sandboxes: inventory.sandboxes, quarantined: inventory.quarantined };
    } catch (error) {
      this.#context.nodes.setReachable(nodeId, false);
      this.#context.logger.warn('a node is out of reach', { nodeId, error });
      return { nodeId, sandboxes: undefined, quarantined: [] };
    }
  }

  /** Follows what a node tells; when it comes back after a silence, everything is compared again. */
  async #watch(nodeId: NodeId): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        await this.#context.nodes.call(nodeId, async (node) => {
          for await (const event of node.watch(signal)) {
            this.#context.nodes.setReachable(nodeId, true);
            // From here on nothing is missed: compare everything once more.
            if (event.kind === 'watching') void this.#loop.wake();
            else void this.#settleOne({ kind: 'end', sandboxId: event.sandboxId, nodeId, reason: 'The node says so.' });
          }
        });
      } catch (error) {
        if (signal.aborted) return;
        if (isPlatformError(error)) this.#context.nodes.setReachable(nodeId, false);
        this.#context.logger.warn('watching a node broke off', { nodeId, error });
      }
      await pause(this.#context.timers, reconnectMs, signal);
    }
  }
}
