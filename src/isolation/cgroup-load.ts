/** Reads what a sandbox's control groups have counted, in whichever hierarchy counts it. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { SandboxLoad } from '../protocol/index.ts';
import type { LimitController } from './cgroup-layout.ts';

/** `groupOf` tells where the commands' group of a controller is, and in which version of the interface. */
export async function readLoad(
  groupOf: (controller: LimitController) => { readonly directory: string; readonly isV1: boolean },
  v2Group: string,
): Promise<SandboxLoad> {
  const memory = groupOf('memory');
  const number = async (directory: string, file: string) => Number(await readFile(join(directory, file), 'utf8'));
  const field = async (directory: string, file: string, name: string) => {
    const text = await readFile(join(directory, file), 'utf8');
    return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
  };
  const [cpuMicros, memoryBytes, memoryCacheBytes, processes] = await Promise.all([
    // Of every group, whichever hierarchy has the controller.
    field(v2Group, 'cpu.stat', 'usage_usec'),
    number(memory.directory, memory.isV1 ? 'memory.usage_in_bytes' : 'memory.current'),
    field(memory.directory, 'memory.stat', memory.isV1 ? 'total_cache' : 'file'),
    number(groupOf('pids').directory, 'pids.current'),
  ]);
  return { cpuMicros, memoryBytes, memoryCacheBytes, processes };
}
