/**
 * Where tests keep what they throw away anyway: in memory where the machine has room for it, because a synced write costs nothing there. A process
 * that is killed loses nothing of it; what has to do with a disk or its file system belongs on one. A run whose directory is looked through at its end
 * (whole-run.ts) has everything there.
 */
import { statfsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const memory = '/dev/shm';
/** Containers may have as little as 64 MiB there, for everybody. */
const wantedBytes = 512 * 1024 * 1024;

export function quickRoot(): string {
  if (process.env['ATOLL_TEST_RUN'] !== undefined) return tmpdir();
  try {
    const { bavail, bsize } = statfsSync(memory);
    return bavail * bsize >= wantedBytes ? memory : tmpdir();
  } catch {
    return tmpdir();
  }
}

export async function quickDirectory(prefix: string): Promise<string> {
  return await mkdtemp(join(quickRoot(), prefix));
}
