/**
 * A random schedule of everything a caller can do, while server and node are killed, against a model of what must be. Used by
 * `npm run soak` and, for a short while, by the tests.
 *
 * Each worker has sandboxes of its own, so that it knows exactly what they must look like, and uses one that all share under
 * leases only. Every change has an idempotency key and is asked for again until it is answered; what must hold then:
 *
 *  - no lost update and no mixture: state, life, metadata and its version are those of the model;
 *  - no duplicate: a command ran once, or at most once where its answer says that nobody knows;
 *  - no invented exit code;
 *  - one holder at a time, tokens that only grow, and no effect of a holder after its successor's;
 *  - nothing on the node or the machine that is not in the model.
 *
 * The seed fixes what each worker and the killer choose; when a kill hits is up to the machine.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { CrashWorker, type Journal, SharedSandbox } from './crash-worker.ts';
import { agreed, briskSettings, expectOnly, removeSandboxes } from './crashes.ts';
import { DiedAtStart, Platform } from './platform.ts';
import { SeededRandom } from './seeded-random.ts';

const workerCount = 4;
const killPauseMs = { min: 200, max: 1_200 };
/** A server that waits to die at a fault point is killed after this. */
const armedMs = 3_000;

const serverPoints = [
  'after-journal-operation',
  'before-store-answer',
  'after-store-answer',
  'after-store-creating',
  'after-create-on-node',
  'before-exec-on-node',
  'after-exec-on-node',
  'before-apply-settings',
  'after-apply-settings',
  'after-apply-settings>store-before-commit',
  'after-journal-operation>store-after-commit',
  'after-store-stopping',
  'after-stop-on-node',
  'after-store-starting',
  'after-start-on-node',
  'after-store-deleting',
  'after-delete-on-node',
  'after-store-pausing',
  'after-pause-on-node',
  'after-store-resuming',
  'after-resume-on-node',
  'after-store-checkpoint',
  'after-checkpoint-on-node',
  'after-store-restoring',
  'after-restore-on-node',
  'after-fork-checkpoint',
  'after-forks-made',
];
const nodePoints = [
  'node-before-spawn',
  'node-after-spawn',
  'node-create-before-commit',
  'node-create-before-answer',
  'node-start-before-answer',
  'node-end-before-record',
  'node-end-after-record',
  'node-settings-before-init',
  'node-settings-before-commit',
  'node-settings-after-settings',
  'node-settings-after-metadata',
  'node-settings-before-answer',
  'node-delete-before-trash',
  'node-delete-after-trash',
  'node-checkpoint-frozen',
  'node-checkpoint-before-answer',
  'node-restore-opened',
  'node-restore-ended',
  'node-restore-before-discard',
  'node-pause-frozen',
  'node-pause-before-answer',
  'node-resume-before-thaw',
  'node-resume-before-answer',
];

export interface ScheduleOptions {
  readonly seed: number;
  readonly durationMs: number;
  readonly say?: (text: string) => void;
}

export interface ScheduleReport {
  readonly seed: number;
  readonly operations: Readonly<Record<string, number>>;
  readonly kills: { readonly server: number; readonly node: number };
  /** Answers that said that nobody knows. */
  readonly doubts: number;
  readonly violations: readonly string[];
}

export async function runSchedule(options: ScheduleOptions): Promise<ScheduleReport> {
  const platform = await Platform.start({ node: 'process', settings: briskSettings });
  try {
    const schedule = new Schedule(platform, options);
    return await schedule.run();
  } finally {
    await platform.close();
  }
}

class Schedule {
  readonly #platform: Platform;
  readonly #options: ScheduleOptions;
  readonly #journal: Journal = { operations: new Map(), doubts: 0, violations: [] };
  readonly #kills = { server: 0, node: 0 };
  readonly #over = new AbortController();

  constructor(platform: Platform, options: ScheduleOptions) {
    this.#platform = platform;
    this.#options = options;
  }

  async run(): Promise<ScheduleReport> {
    const { seed, durationMs } = this.#options;
    const shared = new SharedSandbox((await this.#platform.client.sandboxes.create({ name: 'shared' })).id);
    const workers = Array.from(
      { length: workerCount },
      (_, index) =>
        new CrashWorker({
          platform: this.#platform,
          journal: this.#journal,
          random: new SeededRandom(seed + index + 1),
          name: `worker-${index}`,
          shared,
        }),
    );
    const timer = setTimeout(() => this.#over.abort(), durationMs);
    const working = Promise.all(workers.map((worker) => worker.run(this.#over.signal)));
    try {
      await this.#killUntilOver(new SeededRandom(seed));
      await working;
      await this.#check(workers, shared);
    } catch (error) {
      this.#violation('the schedule itself', error);
    } finally {
      clearTimeout(timer);
      this.#over.abort();
    }
    const { operations, doubts, violations } = this.#journal;
    return { seed, operations: Object.fromEntries(operations), kills: this.#kills, doubts, violations };
  }

  async #killUntilOver(random: SeededRandom): Promise<void> {
    const { signal } = this.#over;
    while (!signal.aborted) {
      await pause(random.between(killPauseMs.min, killPauseMs.max), signal);
      if (signal.aborted) return;
      await random.pick([
        () => this.#killServer(),
        () => this.#killNode(),
        () => this.#killBoth(),
        () => this.#dieAtServerPoint(random.pick(serverPoints)),
        () => this.#dieAtNodePoint(random.pick(nodePoints)),
      ])();
    }
  }

  async #killServer(): Promise<void> {
    this.#kills.server++;
    await this.#platform.restartServer();
  }

  async #killNode(): Promise<void> {
    this.#kills.node++;
    await this.#platform.killNode();
    await this.#platform.startNode();
  }

  async #killBoth(): Promise<void> {
    this.#kills.server++;
    this.#kills.node++;
    await Promise.all([this.#platform.killServer(), this.#platform.killNode()]);
    await this.#platform.startNode();
    await this.#platform.startServer();
  }

  /** Two kills: one to put the fault in place, and the one at the point. */
  async #dieAtServerPoint(point: string): Promise<void> {
    await this.#platform.killServer();
    await mayDieAtOnce(this.#platform.startServer(`${point}=crash`));
    await Promise.race([this.#platform.server.died, pause(armedMs, this.#over.signal)]);
    await this.#platform.restartServer();
    this.#kills.server += 2;
  }

  async #dieAtNodePoint(point: string): Promise<void> {
    await this.#platform.killNode();
    await mayDieAtOnce(this.#platform.startNode(`${point}=crash`));
    await Promise.race([this.#platform.node!.died, pause(armedMs, this.#over.signal)]);
    await this.#platform.killNode();
    await this.#platform.startNode();
    this.#kills.node += 2;
  }

  /** When all is quiet, every side must tell what the model tells. */
  async #check(workers: readonly CrashWorker[], shared: SharedSandbox): Promise<void> {
    const ids = [shared.id, ...workers.flatMap((worker) => worker.sandboxIds)];
    for (const id of ids) await agreed(this.#platform, id);
    for (const worker of workers) await worker.checkAll();
    await workers[0]!.checkShared();
    await expectOnly(this.#platform, ids);
    await removeSandboxes(this.#platform);
    await expectOnly(this.#platform, []);
  }

  #violation(where: string, error: unknown): void {
    const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
    this.#journal.violations.push(`${where}: ${text}`);
    this.#options.say?.(`violation: ${where}: ${text}`);
  }
}

/** What an earlier crash left may lead it to its point before it serves anybody. */
async function mayDieAtOnce(start: Promise<void>): Promise<void> {
  await start.catch((error: unknown) => {
    if (!(error instanceof DiedAtStart)) throw error;
  });
}

/** Resolves early when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
}
