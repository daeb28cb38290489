import { mkdtemp, rmdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { DirectoryInUse, DirectoryLock } from './directory-lock.ts';

test('a second holder is refused and told who holds it, and may have it after the release', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-lock-'));
  const first = await DirectoryLock.acquire(directory, 'test');
  const refusal = await DirectoryLock.acquire(directory, 'test').catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(DirectoryInUse);
  expect(refusal).toMatchObject({ directory, pid: process.pid });
  const other = await DirectoryLock.acquire(directory, 'another role');
  await other.release();
  await first.release();
  const second = await DirectoryLock.acquire(directory, 'test');
  await second.release();
  await rmdir(directory);
});
