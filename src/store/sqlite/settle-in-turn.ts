/**
 * Runs a work that may await only its tables, whose promises are settled when they are returned. Such a work is done before
 * the event loop takes its next turn, however many statements it runs. One that is not awaits something else, maybe for
 * ever, with the transaction open: that is a bug, and told at once.
 */
import { AssertionError } from '../../base/index.ts';

export async function settleInTurn<Result>(work: () => Promise<Result>): Promise<Result> {
  const overdue = Promise.withResolvers<never>();
  // Asked for before the work begins: whatever turn the work waits for comes later than this one.
  const nextTurn = setImmediate(() => overdue.reject(new AssertionError(overdueMessage)));
  try {
    return await Promise.race([work(), overdue.promise]);
  } finally {
    clearImmediate(nextTurn);
  }
}

const overdueMessage =
  'The work of a transaction awaits something other than its tables (network, file, timer, lock or another transaction). ' +
  'It was rolled back.';
