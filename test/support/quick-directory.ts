/**
 * A directory for what a test throws away anyway: in memory where the machine has room for it, because a synced write there costs nothing. What a
 * test has to find again after a kill, or measures, belongs on the disk.
 */
import { mkdtemp, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const memory = '/dev/shm';
/** Containers may have as little as 64 MiB there, for everybody. */
const wantedBytes = 512 * 1024 * 1024;

export async function quickDirectory(prefix: string): Promise<string> {
  const found = await statfs(memory).catch(() => undefined);
  const hasRoom = found !== undefined && found.bavail * found.bsize >= wantedBytes;
  return await mkdtemp(join(hasRoom ? memory : tmpdir(), prefix));
}
