/**
 * Watches the order of locks in this process: what takes a lock of a lower rank than one it holds, or a second one of the same rank that has no
 * order, fails at once and says what it held. Loaded before every test file, and into the servers that tests start.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type LockHold, lockAsked, lockHeld, lockLeft } from '../../src/base/index.ts';

const held = new AsyncLocalStorage<readonly LockHold[]>();

lockHeld.bindStore(held as AsyncLocalStorage<unknown>, (hold) => [...(held.getStore() ?? []), hold as LockHold]);
lockLeft.bindStore(held as AsyncLocalStorage<unknown>, () => []);
lockAsked.subscribe((message) => {
  const asked = message as LockHold;
  // A task that was begun under a lock and outlives it holds it no more.
  const broken = (held.getStore() ?? []).find((hold) => !hold.isOver && !mayFollow(hold, asked));
  if (broken === undefined) return;
  asked.violation = `The lock ${textOf(asked)} is asked for under ${textOf(broken)}: locks are taken in rising rank.`;
});

function mayFollow(hold: LockHold, asked: LockHold): boolean {
  if (asked.rank !== hold.rank) return asked.rank > hold.rank;
  return asked.isOrdered && hold.isOrdered && asked.name === hold.name && asked.key > hold.key;
}

function textOf({ name, rank, key }: LockHold): string {
  return `"${name}" of ${key} (rank ${rank})`;
}
