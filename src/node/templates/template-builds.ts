/**
 * Builds that run and builds that ran. A build is known on disk before it begins and again when it has ended, so that one that a crash cut
 * off is told as failed, and the log of an ended one can be read after a restart.
 *
 * Invariants:
 *  - One build at a time per team, name and source: who asks for the same is given the one that runs.
 *  - At most `runningLimit` run; the newest `keptLimit` are known.
 */
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { apartFromLocks, type Clock, KeyedMutex, type Logger, writeFileDurably } from '../../base/index.ts';
import {
  type BuildId,
  type BuildItem,
  idSchema,
  type NodeBuild,
  PlatformError,
  type TemplateId,
} from '../../protocol/index.ts';
import { BuildLog } from './build-log.ts';

const runningLimit = 4;
const keptLimit = 100;

const buildSchema = z.object({
  teamId: z.string(),
  key: z.string(),
  build: z.object({
    buildId: idSchema('build'),
    name: z.string(),
    state: z.enum(['running', 'succeeded', 'failed']),
    startedAtMs: z.int(),
    endedAtMs: z.int().nullable(),
    templateId: idSchema('template').nullable(),
    error: z.object({ code: z.string(), message: z.string(), details: z.record(z.string(), z.unknown()) }).nullable(),
  }),
  items: z.array(z.custom<BuildItem>((value) => typeof value === 'object' && value !== null)),
});

export interface BuildBegin {
  readonly buildId: BuildId;
  readonly teamId: string;
  readonly name: string;
  readonly key: string;
  readonly work: (log: BuildLog, signal: AbortSignal) => Promise<TemplateId>;
}

interface Running {
  readonly log: BuildLog;
  readonly abort: AbortController;
  readonly over: Promise<void>;
}

export class TemplateBuilds {
  readonly #directory: string;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #running = new Map<BuildId, Running>();
  /** Guards the beginning of builds. Rank 3, alone. */
  readonly #beginLock = new KeyedMutex<'begin'>({ name: 'beginning of builds', rank: 3 });

  constructor(options: { readonly directory: string; readonly clock: Clock; readonly log: Logger }) {
    this.#directory = options.directory;
    this.#clock = options.clock;
    this.#log = options.log;
  }

  /** What was running when the node ended has failed. */
  async open(): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    for (const name of await this.#files()) {
      const log = await this.#read(name.slice(0, -'.json'.length) as BuildId).catch(() => undefined);
      if (log?.build.state !== 'running') continue;
      const error = { code: 'build_cancelled', message: 'The node ended while this was being built.', details: {} };
      log.end({ ...log.build, state: 'failed', endedAtMs: this.#clock.nowMs(), error });
      await this.#save(log);
    }
  }

  async begin(order: BuildBegin): Promise<NodeBuild> {
    return await this.#beginLock.run('begin', async () => {
      const known = await this.#find(order.buildId);
      if (known !== undefined) return known.build;
      for (const { log } of this.#running.values()) {
        if (log.key === order.key && log.teamId === order.teamId) return log.build;
      }
      if (this.#running.size >= runningLimit) {
        throw new PlatformError('limit_exceeded', `This node builds ${runningLimit} templates at a time.`);
      }
      return await this.#beginLocked(order);
    });
  }

  async get(order: { readonly teamId: string; readonly buildId: BuildId }): Promise<BuildLog> {
    const log = await this.#find(order.buildId);
    if (log === undefined || log.teamId !== order.teamId) {
      throw new PlatformError('build_not_found', `There is no build ${order.buildId}.`);
    }
    return log;
  }

  async cancel(order: { readonly teamId: string; readonly buildId: BuildId }): Promise<NodeBuild> {
    const log = await this.get(order);
    const running = this.#running.get(order.buildId);
    running?.abort.abort();
    await running?.over;
    return running?.log.build ?? log.build;
  }

  async close(): Promise<void> {
    for (const { abort } of this.#running.values()) abort.abort();
    await Promise.all([...this.#running.values()].map(({ over }) => over));
  }

  async #beginLocked({ buildId, teamId, name, key, work }: BuildBegin): Promise<NodeBuild> {
    const build: NodeBuild = {
      ...{ buildId, name, state: 'running', startedAtMs: this.#clock.nowMs() },
      ...{ endedAtMs: null, templateId: null, error: null },
    };
    const log = new BuildLog({ teamId, key, build });
    await this.#save(log);
    await this.#prune();
    const abort = new AbortController();
    // Nobody who holds the lock waits for it.
    const over = apartFromLocks(() => this.#work(log, { work, signal: abort.signal }));
    this.#running.set(buildId, { log, abort, over });
    return build;
  }

  async #work(log: BuildLog, how: { readonly work: BuildBegin['work']; readonly signal: AbortSignal }): Promise<void> {
    const end = { ...log.build };
    const { buildId } = end;
    try {
      const templateId = await how.work(log, how.signal);
      log.end({ ...end, state: 'succeeded', endedAtMs: this.#clock.nowMs(), templateId });
    } catch (error) {
      const refusal = how.signal.aborted ? new PlatformError('build_cancelled', 'The build was cancelled.') : error;
      if (!(refusal instanceof PlatformError)) this.#log.error('A build failed.', { buildId, error });
      const { code, message, details } =
        refusal instanceof PlatformError
          ? refusal
          : new PlatformError('internal', 'A bug here; the log of the node tells more.');
      log.end({ ...end, state: 'failed', endedAtMs: this.#clock.nowMs(), error: { code, message, details } });
    }
    await this.#save(log).catch((error: unknown) =>
      this.#log.error('The end of a build was not kept.', { buildId, error }),
    );
    this.#running.delete(buildId);
  }

  async #find(buildId: BuildId): Promise<BuildLog | undefined> {
    return this.#running.get(buildId)?.log ?? (await this.#read(buildId));
  }

  async #read(buildId: BuildId): Promise<BuildLog | undefined> {
    const text = await readFile(this.#path(buildId), 'utf8').catch(() => undefined);
    return text === undefined ? undefined : new BuildLog(buildSchema.parse(JSON.parse(text)));
  }

  async #save(log: BuildLog): Promise<void> {
    const { teamId, key, build, items } = log;
    await writeFileDurably(this.#path(build.buildId), JSON.stringify({ teamId, key, build, items }));
  }

  async #prune(): Promise<void> {
    const files = await this.#files();
    if (files.length <= keptLimit) return;
    const times = await Promise.all(
      files.map(async (name) => ({ name, atMs: (await stat(join(this.#directory, name))).mtimeMs })),
    );
    times.sort((a, b) => b.atMs - a.atMs);
    for (const { name } of times.slice(keptLimit)) await rm(join(this.#directory, name), { force: true });
  }

  async #files(): Promise<string[]> {
    return (await readdir(this.#directory)).filter((name) => /^bld[a-z0-9]{20}\.json$/.test(name));
  }

  #path(buildId: BuildId): string {
    return join(this.#directory, `${buildId}.json`);
  }
}
