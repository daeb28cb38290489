import { mkdtemp, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { NodeLock } from './node-lock.ts';

test('a second holder is refused and told who holds it, and may have it after the release', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-lock-'));
  const first = await NodeLock.acquire(directory);
  await expect(NodeLock.acquire(directory)).rejects.toMatchObject({
    code: 'directory_in_use',
    details: { directory, pid: process.pid },
  });
  await first.release();
  const second = await NodeLock.acquire(directory);
  await second.release();
  await rmdir(directory);
});
