/** What the kernel says: processor time and memory of processes, memory of the machine. */
import { readFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';

/** USER_HZ, which is 100 on every Linux that runs Node. */
const ticksPerSecond = 100;

export interface CpuSeconds {
  readonly own: number;
  /** Of children that have ended and were waited for. */
  readonly children: number;
}

export function cpuSecondsOf(pid: number): CpuSeconds {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The name in parentheses may hold anything; the numbers begin behind it, with field 3.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const at = (field: number) => Number(fields[field - 3]) / ticksPerSecond;
  return { own: at(14) + at(15), children: at(16) + at(17) };
}

export function cpuSecondsBetween(before: CpuSeconds, after: CpuSeconds): CpuSeconds {
  return { own: after.own - before.own, children: after.children - before.children };
}

/** Pages without a file behind them: what the process itself takes. */
export function anonymousBytesOf(pid: number): number {
  return kibibytesIn(readFileSync(`/proc/${pid}/status`, 'utf8'), 'RssAnon') * 1024;
}

export function availableBytes(): number {
  return kibibytesIn(readFileSync('/proc/meminfo', 'utf8'), 'MemAvailable') * 1024;
}

/** Where the kernel itself keeps what belongs to sandboxes. */
const kernelParts = ['AnonPages', 'Shmem', 'SUnreclaim', 'KernelStack', 'PageTables', 'Percpu'] as const;

export function memoryParts(): ReadonlyMap<string, number> {
  const text = readFileSync('/proc/meminfo', 'utf8');
  return new Map(kernelParts.map((name) => [name, kibibytesIn(text, name) * 1024]));
}

/** No host name and no path: the results are published. */
export function describeMachine(): string {
  const gibibytes = Math.round(totalmem() / 1024 ** 3);
  const cores = cpus().length;
  return `${cores} cores, ${gibibytes} GiB of memory, Linux ${release()} ${process.arch}, Node ${process.versions.node}`;
}

function kibibytesIn(text: string, name: string): number {
  const found = new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(text);
  if (found === null) throw new Error(`The kernel does not tell ${name}.`);
  return Number(found[1]);
}
