/**
 * Holds the lease on a sandbox over a whole cycle. Whoever waits is told who holds it, for how long and why; whoever does not want to wait is
 * refused with the same. It is renewed meanwhile and released however `work` ends; when it is lost, `work` hears it through its signal, and
 * whatever it still sends is refused by the node.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Atoll, HeldLease } from '../sdk/index.ts';

export interface HolderView {
  readonly holder: string;
  readonly reason: string;
  readonly heldForMs: number;
  readonly waiting: number;
}

export interface HoldOptions {
  readonly sandboxId: string;
  readonly holder: string;
  /** Shown to those who wait: what runs. */
  readonly reason: string;
  /** 0: not at all. */
  readonly waitMs: number;
  readonly nowMs: () => number;
  /** Called when there is somebody to wait for, and again when it is somebody else. */
  readonly onWait: (holder: HolderView) => void;
  readonly onStep: (step: 'requested' | 'granted' | 'released') => void;
  readonly signal?: AbortSignal;
}

/** A client that is killed holds up the others for so long at most. */
const ttlMs = 15_000;
const lookEveryMs = 2_000;
const holderMaxLength = 100;
const reasonMaxLength = 500;

export async function holdLease<Result>(
  client: Atoll,
  options: HoldOptions,
  work: (held: HeldLease) => Promise<Result>,
): Promise<Result> {
  const { sandboxId, waitMs, onStep, signal } = options;
  const wanted = {
    resources: [sandboxId],
    holder: options.holder.slice(0, holderMaxLength),
    reason: options.reason.slice(0, reasonMaxLength),
    ttlMs,
    ...(signal && { signal }),
  };
  let isGranted = false;
  const granted = async (held: HeldLease) => {
    isGranted = true;
    onStep('granted');
    return await work(held);
  };
  onStep('requested');
  try {
    return await client.leases.hold({ ...wanted, waitMs: 0 }, granted);
  } catch (error) {
    if (isGranted || !isPlatformError(error, 'lease_held')) throw error;
    const holder = await holderOf(client, options);
    if (waitMs === 0) throw refused(error, holder);
  } finally {
    if (isGranted) onStep('released');
  }
  const over = new AbortController();
  const telling = tellHolders(client, options, over.signal);
  try {
    return await client.leases.hold({ ...wanted, waitMs }, async (held) => {
      over.abort();
      return await granted(held);
    });
  } finally {
    over.abort();
    await telling;
    if (isGranted) onStep('released');
  }
}

export async function holderOf(
  client: Atoll,
  options: { readonly sandboxId: string; readonly nowMs: () => number },
): Promise<HolderView | undefined> {
  const [lease] = await client.leases.list({ resource: options.sandboxId });
  if (lease === undefined) return undefined;
  const { holder, reason, waiting, grantedAt } = lease;
  return { holder, reason, waiting, heldForMs: Math.max(0, options.nowMs() - Date.parse(grantedAt)) };
}

async function tellHolders(client: Atoll, options: HoldOptions, over: AbortSignal): Promise<void> {
  let told: string | undefined;
  while (!over.aborted) {
    // What cannot be told now is told the next time; the waiting itself goes on.
    const holder = await holderOf(client, options).catch(() => undefined);
    const name = holder === undefined ? undefined : `${holder.holder} ${holder.reason}`;
    if (holder !== undefined && name !== told && !over.aborted) options.onWait(holder);
    told = name ?? told;
    await client.connection.clock.wait(lookEveryMs, over);
  }
}

function refused(error: PlatformError, holder: HolderView | undefined): PlatformError {
  if (holder === undefined) return error;
  const seconds = Math.round(holder.heldForMs / 1_000);
  const message = `The sandbox is held by ${holder.holder} for ${seconds} s: ${holder.reason}`;
  return new PlatformError('lease_held', message, { details: { ...error.details, ...holder }, cause: error });
}
