/** One command without a shell, over HTTP: one at a time, and with many clients. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Cgroups } from '../../src/isolation/index.ts';
import type { Platform } from '../../test/support/platform.ts';
import { againstLimit, againstPeer, figure, formatNumber } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';
import { addressOf, startPlatform, startRaw, startSpawnPeer } from '../start.ts';
import { summarize } from '../statistics.ts';
import { cpuSecondsBetween, cpuSecondsOf } from '../system.ts';
import { Worker } from '../worker.ts';

const rounds = 400;
const clients = 32;
const spellMs = 2_000;
const spellRounds = 4;

interface Rig {
  readonly platform: Platform;
  readonly load: Worker;
  readonly raw: Worker;
  readonly spawn: Worker;
  readonly sandboxId: string;
}

async function startRig(scope: Scope): Promise<Rig> {
  const platform = await startPlatform(scope);
  const sandbox = await platform.client.sandboxes.create();
  const load = Worker.start(scope, 'http-load.ts');
  await load.run('connect', { address: addressOf(platform), sandboxId: sandbox.id });
  const raw = await startRaw(scope);
  await raw.run('keep');
  return { platform, load, raw, spawn: startSpawnPeer(scope), sandboxId: sandbox.id };
}

export const execRow: Row = {
  name: 'exec',
  run: async (scope) => {
    const { load, raw, spawn } = await startRig(scope);
    const variants = { ours: () => load.run('one'), raw: () => raw.run('one'), spawn: () => spawn.run('one') };
    const samples = await interleave(variants, { rounds, warmups: 50 });
    const ours = figure('exec `true` over HTTP, one at a time', samples.ours);
    return [
      againstPeer(ours, figure('spawn sh -c true', samples.spawn), { atMost: 1.2 }),
      againstPeer(ours, figure('raw init', samples.raw)),
    ];
  },
};

interface Spell {
  readonly done: number;
  readonly seconds: number;
  readonly samples?: readonly number[];
}

export const execParallelRow: Row = {
  name: 'exec-parallel',
  run: async (scope) => {
    const rig = await startRig(scope);
    const { load, raw, spawn } = rig;
    const options = { clients, ms: spellMs };
    const cpu = new CpuPerExec(await processesOf(rig));
    const variants = {
      ours: async (round: number) => {
        const before = cpu.read();
        const spell = await load.run<Spell>('many', options);
        if (round >= 0) cpu.add(before, spell.done);
        return spell;
      },
      raw: () => raw.run<Spell>('many', options),
      spawn: () => spawn.run<Spell>('many', options),
    };
    const spells = await interleave<keyof typeof variants, Spell>(variants, { rounds: spellRounds, warmups: 1 });
    const rates = (list: readonly Spell[]) => list.map(({ done, seconds }) => done / seconds);
    const each = summarize(spells.ours.flatMap(({ samples }) => samples ?? []));
    const ours = figure(`exec \`true\` over HTTP, ${clients} clients`, rates(spells.ours), '/s');
    return [
      againstLimit(
        ours,
        { atLeast: 1_000 },
        {
          notes: [
            `Each command then takes ${formatNumber(each.p50)} ms (p99 ${formatNumber(each.p99)}, n=${each.count}).`,
            `CPU milliseconds per exec: ${cpu.describe()}.`,
          ],
        },
      ),
      againstPeer(ours, figure('raw init', rates(spells.raw), '/s')),
      againstPeer(ours, figure('spawn sh -c true', rates(spells.spawn), '/s')),
    ];
  },
};

interface Watched {
  readonly name: string;
  readonly pid: number;
}

async function processesOf(rig: Rig): Promise<readonly Watched[]> {
  const cgroups = await Cgroups.open({ dataDirectory: rig.platform.nodeDirectory });
  const members = readFileSync(join(cgroups.groupOf(rig.sandboxId).cgroup, 'init', 'cgroup.procs'), 'utf8');
  return [
    { name: 'server', pid: rig.platform.server.pid },
    { name: 'load generator', pid: rig.load.pid },
    { name: 'init', pid: Number(members.trim().split('\n')[0]) },
  ];
}

/** Where the time goes: processor time of each process taken together over all spells. */
class CpuPerExec {
  readonly #watched: readonly Watched[];
  readonly #own = new Map<string, number>();
  #commands = 0;
  #execs = 0;

  constructor(watched: readonly Watched[]) {
    this.#watched = watched;
  }

  read() {
    return this.#watched.map(({ pid }) => cpuSecondsOf(pid));
  }

  add(before: ReturnType<CpuPerExec['read']>, execs: number): void {
    this.#execs += execs;
    for (const [index, { name, pid }] of this.#watched.entries()) {
      const { own, children } = cpuSecondsBetween(before[index]!, cpuSecondsOf(pid));
      this.#own.set(name, (this.#own.get(name) ?? 0) + own);
      if (name === 'init') this.#commands += children;
    }
  }

  describe(): string {
    const each = [...this.#own, ['the commands themselves', this.#commands] as const];
    return each.map(([name, seconds]) => `${name} ${formatNumber((seconds * 1_000) / this.#execs)}`).join(', ');
  }
}
