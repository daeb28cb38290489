/**
 * What a push and a pull would carry now. No file of either side changes, except that an apply which was cut short is finished first; the look
 * into the sandbox is a command there, so it needs the lease like any other.
 */
import type { Sandbox } from '../../sdk/index.ts';
import type { Checkout } from './checkout.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { settleConflicts } from './conflicts.ts';
import { nameText } from './git-process.ts';
import { limitsOf } from './limits.ts';
import { takeSnapshot } from './local-snapshot.ts';
import type { SyncOptions, SyncStatus } from './options.ts';
import { pullLocked } from './pull.ts';
import { readRecord } from './records.ts';
import { changesBetween } from './trees.ts';

export function status(checkout: Checkout, sandbox: Sandbox, options: SyncOptions = {}): Promise<SyncStatus> {
  return withCheckoutLock(checkout, options.signal, async () => {
    const leftovers = await settleConflicts(checkout, undefined);
    const record = await readRecord(checkout, sandbox.id);
    if (record === undefined) return { state: 'never', local: [], sandbox: [], leftovers };
    const secretsPolicy = options.secretsPolicy === 'send' ? 'send' : 'skip';
    const snapshot = await takeSnapshot(checkout, { limits: limitsOf(options.limits), secretsPolicy });
    const local = (await changesBetween(checkout, record.seenTree, snapshot.tree)).map(({ name }) => nameText(name));
    const { paths, commits } = await pullLocked(checkout, sandbox, { ...options, dryRun: true });
    const isSame = local.length === 0 && paths.length === 0 && commits.length === 0;
    return { state: isSame ? 'same' : 'changed', local, sandbox: paths, leftovers };
  });
}
