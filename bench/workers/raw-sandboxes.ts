/**
 * Sandboxes without the platform: the same spawner, groups and init, driven directly. No record, no store, no HTTP, nothing
 * that survives a crash of this process. What the platform takes beyond this is what it adds.
 */
import { mkdirSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { SystemClock } from '../../src/base/index.ts';
import { defaultControlSettings } from '../../src/control/index.ts';
import { exec, InitClient } from '../../src/execution/index.ts';
import { Cgroups, Spawner } from '../../src/isolation/index.ts';
import { HostTemplate, type TemplateLayers } from '../../src/layers/index.ts';
import { uidBaseOf } from '../../src/node/id-slots.ts';
import { execLimits, newId, type SandboxId } from '../../src/protocol/index.ts';
import { serveJobs } from './serve-jobs.ts';

interface RawSandbox {
  readonly id: SandboxId;
  readonly directory: string;
  readonly client: InitClient;
  readonly pid: number;
}

interface Parts {
  readonly directory: string;
  readonly spawner: Spawner;
  readonly cgroups: Cgroups;
  readonly template: TemplateLayers;
}

const clock = new SystemClock();
const live = new Map<SandboxId, RawSandbox>();
let parts: Parts | undefined;
let slot = 0;
let kept: RawSandbox | undefined;

async function open(options: { directory: string; layersDirectory: string; initProgram: string }): Promise<void> {
  await mkdir(options.directory, { recursive: true, mode: 0o700 });
  const spawner = new Spawner({ program: options.initProgram, directory: options.directory });
  await spawner.ready();
  const cgroups = await Cgroups.open({ dataDirectory: options.directory });
  const template = await new HostTemplate({ directory: options.layersDirectory }).ensure();
  parts = { directory: options.directory, spawner, cgroups, template };
}

async function create(): Promise<RawSandbox> {
  const { spawner, cgroups, template, directory: parent } = parts!;
  const id = newId('sandbox');
  const directory = join(parent, id);
  makeDirectories(directory);
  const group = await cgroups.make(id, defaultControlSettings.defaultLimits);
  const pid = await spawner.create({
    ...group,
    ...template,
    id,
    directory,
    uidBase: uidBaseOf(slot++ % 1_000),
    deadlineBootMs: 0,
    generation: 1,
    noNewPrivileges: false,
    fence: 0,
    openGuards: [],
    endFile: 'end-1',
  });
  const client = await InitClient.connect({ directory, generation: 1 });
  const sandbox = { id, directory, client, pid };
  live.set(id, sandbox);
  return sandbox;
}

/** What the spawner expects to find; nobody else waits here, so the quickest way is the right one. */
function makeDirectories(directory: string): void {
  mkdirSync(directory, { mode: 0o700 });
  for (const name of ['upper', 'work', 'usr-upper', 'usr-work', 'shared']) mkdirSync(join(directory, name));
}

async function remove(sandbox: RawSandbox): Promise<void> {
  live.delete(sandbox.id);
  await sandbox.client.close();
  await parts!.cgroups.remove(sandbox.id);
  await parts!.spawner.remove(sandbox.directory);
}

async function runOne(sandbox: RawSandbox): Promise<void> {
  const context = { client: sandbox.client, clock, sandboxEnv: {}, token: 0 };
  const outcome = await exec(context, {
    sandboxId: sandbox.id,
    generation: 1,
    runId: newId('operation'),
    leaseToken: null,
    command: ['true'],
    cwd: null,
    env: {},
    user: null,
    stdin: null,
    timeoutMs: null,
    outputLimitBytes: execLimits.outputBytes,
  });
  if (outcome.exitCode !== 0) throw new Error(`The command ended with ${outcome.exitCode}.`);
}

serveJobs(
  {
    open,

    /** Milliseconds until the first command of a new sandbox is done. */
    create: async () => {
      const startedAt = performance.now();
      const sandbox = await create();
      await runOne(sandbox);
      const ms = performance.now() - startedAt;
      await remove(sandbox);
      return ms;
    },

    /** The same for many at once; milliseconds until the last is done. */
    burst: async ({ count }: { count: number }) => {
      const startedAt = performance.now();
      const makeOne = async () => {
        const sandbox = await create();
        await runOne(sandbox);
        return sandbox;
      };
      const sandboxes = await Promise.all(Array.from({ length: count }, makeOne));
      const ms = performance.now() - startedAt;
      await Promise.all(sandboxes.map(remove));
      return ms;
    },

    /** One that stays, for `one` and `many`; its init's pid. */
    keep: async () => {
      kept = await create();
      return kept.pid;
    },

    one: async () => {
      const startedAt = performance.now();
      await runOne(kept!);
      return performance.now() - startedAt;
    },

    many: async ({ clients, ms }: { clients: number; ms: number }) => {
      const startedAt = performance.now();
      let done = 0;
      const one = async () => {
        while (performance.now() - startedAt < ms) {
          await runOne(kept!);
          done++;
        }
      };
      await Promise.all(Array.from({ length: clients }, one));
      return { done, seconds: (performance.now() - startedAt) / 1000 };
    },
  },
  async () => {
    if (parts === undefined) return;
    await Promise.allSettled([...live.values()].map(remove));
    // What a failed create left has a group and perhaps processes.
    for (const name of await parts.cgroups.list()) await parts.cgroups.remove(name);
    await parts.spawner.remove(parts.directory).catch(() => rm(parts!.directory, { recursive: true, force: true }));
    await parts.spawner.close();
    await parts.cgroups.removeRoots();
  },
);
