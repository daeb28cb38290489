/** Control as a whole: its parts put together, started and closed in order. */
import { BackgroundLoop } from '../base/index.ts';
import { stateKinds } from '../protocol/index.ts';
import { Backups, type KeptArchives } from './backups.ts';
import { Checkpoints } from './checkpoints.ts';
import type { ControlContext } from './context.ts';
import { EventHub } from './event-hub.ts';
import { Events } from './events.ts';
import { Execution } from './execution.ts';
import { Files } from './files.ts';
import { Forks } from './forks.ts';
import { HiddenSandboxes } from './hidden-sandboxes.ts';
import { LeaseGate } from './lease-gate.ts';
import { LeaseGrants } from './lease-grants.ts';
import { LeaseKeeper } from './lease-keeper.ts';
import { Leases } from './leases.ts';
import { LifeChanges } from './life-changes.ts';
import { MetadataService } from './metadata.ts';
import { Mutations } from './mutations.ts';
import { Operations } from './operations.ts';
import type { PlanWork } from './plans/plan-work.ts';
import { Plans } from './plans/plans.ts';
import { WorkspacePlanWork } from './plans/workspace-plan-work.ts';
import { Ports } from './ports.ts';
import { Processes } from './processes.ts';
import { Reconciler } from './reconciler.ts';
import { Repairs } from './repairs.ts';
import { Retention } from './retention.ts';
import { SandboxCreation } from './sandbox-creation.ts';
import { SandboxLanes } from './sandbox-lanes.ts';
import { SandboxLives } from './sandbox-lives.ts';
import { SandboxPauses } from './sandbox-pauses.ts';
import { SandboxRecords } from './sandbox-records.ts';
import { SandboxRestores } from './sandbox-restores.ts';
import { Sandboxes } from './sandboxes.ts';
import { Sessions } from './sessions.ts';
import { TeamDisk } from './team-disk.ts';
import { Templates } from './templates.ts';
import { Terminals } from './terminals.ts';
import { type Deliver, Webhooks } from './webhooks.ts';
import { Who } from './who.ts';
import { AttachCache } from './workspaces/attach-cache.ts';
import { AttachmentChanges } from './workspaces/attachment-changes.ts';
import { Attachments } from './workspaces/attachments.ts';
import { CreationAttachments } from './workspaces/creation-attachments.ts';
import { SandboxChanges } from './workspaces/sandbox-changes.ts';
import { VersionPublishing } from './workspaces/version-publishing.ts';
import { WorkspaceDirectory } from './workspaces/workspace-directory.ts';
import { WorkspaceRecovery } from './workspaces/workspace-recovery.ts';
import { Workspaces } from './workspaces/workspaces.ts';

/** What control is made of; lanes and the event hub are its own. */
export type ControlOptions = Omit<ControlContext, 'lanes' | 'events'> & {
  readonly deliver: Deliver;
  /** Where backups are kept. */
  readonly archives: KeptArchives;
  /** Who does the work of plans on workspaces; absent: what control has for it. */
  readonly planWork?: PlanWork;
};

export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge';
  readonly samples: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[];
}

const trimIntervalMs = 60_000;
const webhookIntervalMs = 1_000;

export class Control {
  readonly sandboxes: Sandboxes;
  readonly metadata: MetadataService;
  readonly execution: Execution;
  readonly files: Files;
  readonly processes: Processes;
  readonly sessions: Sessions;
  readonly ports: Ports;
  readonly terminals: Terminals;
  readonly pauses: SandboxPauses;
  readonly checkpoints: Checkpoints;
  readonly restores: SandboxRestores;
  readonly forks: Forks;
  readonly backups: Backups;
  readonly templates: Templates;
  readonly workspaces: Workspaces;
  readonly versions: VersionPublishing;
  readonly attachments: Attachments;
  readonly attachmentChanges: AttachmentChanges;
  /** The steps that a plan shares with the commit of one sandbox. */
  readonly workspaceChanges: SandboxChanges;
  readonly leases: Leases;
  readonly plans: Plans;
  readonly who: Who;
  readonly events: Events;
  readonly webhooks: Webhooks;
  readonly operations: Operations;
  readonly reconciler: Reconciler;
  readonly #context: ControlContext;
  readonly #keeper: LeaseKeeper;
  readonly #mutations: Mutations;
  readonly #loops: readonly BackgroundLoop[];
  readonly #closing = new AbortController();

  constructor(options: ControlOptions) {
    const { deliver, archives, planWork, ...given } = options;
    const context: ControlContext = { ...given, lanes: new SandboxLanes(), events: new EventHub() };
    const records = new SandboxRecords(context);
    const mutations = new Mutations(context);
    const gate = new LeaseGate(context);
    const grants = new LeaseGrants(context, records);
    this.#context = context;
    this.#mutations = mutations;
    this.metadata = new MetadataService(context, { records, mutations, gate });
    const changes = new LifeChanges(context, { records, mutations, gate });
    const lives = new SandboxLives(context, { records, mutations, gate, changes });
    const disk = new TeamDisk(context);
    this.pauses = new SandboxPauses(context, { records, changes });
    records.wakeWith((record) => this.pauses.wake(record.id));
    const checkpoints = new Checkpoints(context, { records, mutations, gate, disk });
    this.checkpoints = checkpoints;
    this.restores = new SandboxRestores(context, { records, changes, checkpoints });
    const hidden = new HiddenSandboxes(context);
    const directory = new WorkspaceDirectory(context);
    const cache = new AttachCache(context, { checkpoints, hidden });
    const workspaceChanges = new SandboxChanges(context, { directory, checkpoints, hidden });
    this.workspaceChanges = workspaceChanges;
    this.attachments = new Attachments(context, { records, mutations, gate, directory, changes: workspaceChanges });
    const { attachments } = this;
    this.attachmentChanges = new AttachmentChanges(context, {
      ...{ mutations, directory, attachments, changes: workspaceChanges },
    });
    this.versions = new VersionPublishing(context, { mutations, directory, changes: workspaceChanges });
    this.workspaces = new Workspaces(context, { mutations, directory, publishing: this.versions, cache });
    const recovery = new WorkspaceRecovery(context, {
      ...{ directory, workspaces: this.workspaces, cache, changes: workspaceChanges },
    });
    const creation = new SandboxCreation(context, {
      ...{ records, mutations, checkpoints, disk },
      attaching: new CreationAttachments(context, { directory, cache, attachments }),
      discard: (caller, sandboxId) => lives.delete(caller, sandboxId, {}, { force: true }),
    });
    this.forks = new Forks(context, { records, mutations, gate, checkpoints, creation });
    const retention = new Retention(context, { checkpoints });
    this.sandboxes = new Sandboxes(context, { records, creation, metadata: this.metadata, lives });
    this.execution = new Execution(context, { records, mutations, gate });
    this.files = new Files(context, { records, mutations, gate });
    this.backups = new Backups(context, { records, mutations, gate, files: this.files, disk, archives });
    this.processes = new Processes(context, { records, mutations, gate });
    this.sessions = new Sessions(context, { records, mutations, gate });
    this.ports = new Ports(context, { records, mutations, gate });
    this.terminals = new Terminals(context, { records, mutations, gate });
    this.templates = new Templates(context, { mutations });
    this.#keeper = new LeaseKeeper(context, { grants, gate });
    this.leases = new Leases(context, { records, mutations, keeper: this.#keeper });
    this.plans = new Plans(context, {
      ...{ mutations, leases: this.leases, keeper: this.#keeper, checkpoints, pauses: this.pauses },
      restores: this.restores,
      work: planWork ?? new WorkspacePlanWork(context, { attachments, hidden, changes: workspaceChanges }),
    });
    this.who = new Who(context, { mutations, records });
    this.events = new Events(context);
    this.webhooks = new Webhooks(context, { mutations, deliver });
    this.operations = new Operations(context);
    const repairs = new Repairs(context, {
      records,
      pauses: this.pauses,
      restores: this.restores,
      finishDelete: (lane, record) => lives.finishDelete(lane, record),
      releaseLease: async (lane, record) => {
        await grants.vacateSandbox(lane, record, { why: 'lost', by: 'reconcile' });
        gate.opened(record.id);
      },
      leaseGone: (sandboxId) => this.#keeper.endOn(sandboxId),
    });
    lives.onDeleted((sandboxId) => this.#keeper.endOn(sandboxId));
    this.reconciler = new Reconciler(context, {
      records,
      repairs,
      retention,
      hidden,
      isLeased: (id) => this.#keeper.queue.isBusy(id),
    });
    this.#loops = [
      this.#loop(trimIntervalMs, () => this.operations.trim()),
      this.#loop(context.settings.retentionIntervalMs, async () => {
        await retention.run({ dryRun: false });
        await this.backups.tick();
        await disk.look();
      }),
      this.#loop(context.settings.planRecoveryIntervalMs, async () => {
        await this.plans.recovery.run();
      }),
      this.#loop(context.settings.retentionIntervalMs, () => recovery.tick()),
      this.#loop(webhookIntervalMs, async () => {
        await this.webhooks.tick(this.#closing.signal);
      }),
    ];
  }

  async open(): Promise<void> {
    await this.#keeper.open();
    this.reconciler.start();
    for (const loop of this.#loops) loop.start();
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.plans.close();
    this.#keeper.close();
    await this.reconciler.close();
    await Promise.all(this.#loops.map((loop) => loop.close()));
    this.#context.events.notify();
  }

  /** Streams of events that wait for the next one. */
  get eventFollowers(): number {
    return this.#context.events.waiting;
  }

  readiness(): { ready: boolean; reasons: string[] } {
    const { nodes } = this.#context;
    const reasons = nodes
      .ids()
      .filter((id) => !nodes.isReachable(id))
      .map((id) => `Node ${id} is out of reach.`);
    if (!this.reconciler.isFirstRoundDone) reasons.push('Records and nodes are being compared for the first time.');
    return { ready: reasons.length === 0, reasons };
  }

  async metrics(): Promise<Metric[]> {
    const { store, lanes, nodes } = this.#context;
    const counts = await store.read((tables) =>
      Promise.all(stateKinds.map(async (kind) => ({ kind, count: await tables.sandboxes.count({ states: [kind] }) }))),
    );
    const gauge = (name: string, help: string, value: number): Metric => ({
      name,
      help,
      type: 'gauge',
      samples: [{ labels: {}, value }],
    });
    return [
      {
        name: 'atoll_sandboxes',
        help: 'Sandboxes by state.',
        type: 'gauge',
        samples: counts.map(({ kind, count }) => ({ labels: { state: kind }, value: count })),
      },
      {
        name: 'atoll_node_reachable',
        help: 'Whether a node is in reach.',
        type: 'gauge',
        samples: nodes.ids().map((id) => ({ labels: { node: id }, value: nodes.isReachable(id) ? 1 : 0 })),
      },
      gauge('atoll_lanes_busy', 'Sandboxes that are being changed.', lanes.busy),
      gauge('atoll_sandboxes_in_doubt', 'Sandboxes whose last change has an unknown outcome.', lanes.doubtful.length),
      gauge('atoll_operations_running', 'Mutations under an idempotency key that run now.', this.#mutations.running),
      gauge('atoll_event_followers', 'Streams of events that wait for the next one.', this.eventFollowers),
      gauge('atoll_leases_held', 'Leases that are held.', this.#keeper.count),
      {
        name: 'atoll_reconcile_actions_total',
        help: 'Differences between records and nodes that were settled.',
        type: 'counter',
        samples: [{ labels: {}, value: this.reconciler.actionsTaken }],
      },
    ];
  }

  #loop(intervalMs: number, tick: () => Promise<void>): BackgroundLoop {
    const { timers, logger } = this.#context;
    return new BackgroundLoop({
      intervalMs,
      tick,
      timers,
      onError: (error) => logger.error('a background loop failed', { error }),
    });
  }
}
