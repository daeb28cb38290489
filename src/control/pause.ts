import type { Timers } from '../base/index.ts';

/** Waits for `delayMs`, or until the signal aborts; leaves neither timer nor listener behind. */
export async function pause(timers: Timers, delayMs: number, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const end = () => resolve();
  const cancel = timers.after(delayMs, end);
  signal.addEventListener('abort', end);
  await promise;
  cancel();
  signal.removeEventListener('abort', end);
}
