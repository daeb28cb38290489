/**
 * The order in which locks are taken, for whoever wants to see it kept. Every ranked lock tells of itself on a diagnostics channel: before it is
 * waited for, and for as long as it is held. Nobody listens in production, and then it costs a look at a flag; tests listen in every run
 * (test/support/check-lock-order.ts) and fail whatever takes locks in falling order, before it can wait for ever.
 */
import { channel } from 'node:diagnostics_channel';
import { assert } from './assert.ts';

export interface LockPlace {
  readonly name: string;
  /** Locks are taken in rising rank. */
  readonly rank: number;
}

/** One lock that is asked for, held or given back. Of the same rank, only in rising order of keys and only if `isOrdered`. */
export interface LockHold extends LockPlace {
  readonly key: string;
  readonly isOrdered: boolean;
  isOver: boolean;
  /** Set by a subscriber: why it must not be waited for. */
  violation: string | undefined;
}

/** Asked for, by whoever is told of it. */
export const lockAsked = channel('atoll:lock-asked');
/** Held: stores that are bound to it see the hold during the task. */
export const lockHeld = channel('atoll:lock-held');
/** Work that is begun under a lock, and goes on without it. */
export const lockLeft = channel('atoll:lock-left');

/** Tells that a lock is asked for; undefined when nobody listens. */
export function askFor(place: LockPlace | undefined, key: unknown, isOrdered = false): LockHold | undefined {
  if (place === undefined || !lockAsked.hasSubscribers) return undefined;
  const hold: LockHold = { ...place, key: String(key), isOrdered, isOver: false, violation: undefined };
  lockAsked.publish(hold);
  assert(hold.violation === undefined, hold.violation ?? '');
  return hold;
}

/** Runs the task as one that holds the lock. */
export async function whileHeld<Result>(hold: LockHold | undefined, task: () => Promise<Result>): Promise<Result> {
  if (hold === undefined) return await task();
  try {
    return await lockHeld.runStores(hold, task);
  } finally {
    hold.isOver = true;
  }
}

/** Begins what nobody who holds a lock waits for: it takes its own locks from the beginning. */
export function apartFromLocks<Result>(task: () => Result): Result {
  return lockLeft.runStores({}, task);
}
