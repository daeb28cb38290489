/**
 * One sync at a time in a checkout: the shadow's index, the journal and the records belong to whoever holds it. The kernel takes it back when the
 * process dies. Held for one push or one pull, never across the command between them.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { DirectoryInUse, DirectoryLock } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { Checkout } from './checkout.ts';

const waitLimitMs = 10 * 60_000;
const lookAgainMs = 25;

export async function withCheckoutLock<Result>(
  checkout: Pick<Checkout, 'directory'>,
  signal: AbortSignal | undefined,
  work: () => Promise<Result>,
): Promise<Result> {
  const lock = await acquire(checkout, signal);
  try {
    return await work();
  } finally {
    await lock.release();
  }
}

async function acquire(checkout: Pick<Checkout, 'directory'>, signal: AbortSignal | undefined): Promise<DirectoryLock> {
  for (let waitedMs = 0; ; waitedMs += lookAgainMs) {
    signal?.throwIfAborted();
    try {
      return await DirectoryLock.acquire(checkout.directory, 'sync');
    } catch (error) {
      if (!(error instanceof DirectoryInUse)) throw error;
      if (waitedMs > waitLimitMs) {
        const who = error.pid === undefined ? 'Another process' : `Process ${error.pid}`;
        throw new PlatformError('sync_failed', `${who} is syncing this checkout and does not come to an end.`);
      }
    }
    await pause(lookAgainMs);
  }
}
