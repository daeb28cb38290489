/**
 * What a push and a pull would carry now. It only looks: no file of either side changes, no lease is needed, and what was interrupted here is told
 * and not finished. While somebody else holds the sandbox, nobody looks into it; who that is, is told instead.
 */
import { isPlatformError } from '../../protocol/index.ts';
import type { Sandbox } from '../../sdk/index.ts';
import { isInterrupted } from './apply.ts';
import type { Checkout } from './checkout.ts';
import { withCheckoutLock } from './checkout-lock.ts';
import { settleConflicts } from './conflicts.ts';
import { nameText, zeroSeparated } from './git-process.ts';
import { limitsOf } from './limits.ts';
import { emptyTree, takeSnapshot } from './local-snapshot.ts';
import type { SyncOptions, SyncStatus } from './options.ts';
import { readRecord, type SyncRecord } from './records.ts';
import { statusScript } from './sandbox-scripts.ts';
import { refusalOf, SandboxSide } from './sandbox-side.ts';
import { changesBetween, isBelow } from './trees.ts';

/** Of names that the sandbox tells. */
const namesLimitBytes = 8 * 1024 * 1024;

export async function status(checkout: Checkout, sandbox: Sandbox, options: SyncOptions = {}): Promise<SyncStatus> {
  const record = await readRecord(checkout, sandbox.id);
  const [here, there] = await Promise.allSettled([
    withCheckoutLock(checkout, options.signal, () => localChanges(checkout, record, options)),
    record === undefined ? [] : sandboxChanges(checkout, sandbox, { record, options }),
  ]);
  if (here.status === 'rejected') throw here.reason;
  if (there.status === 'rejected' && !isPlatformError(there.reason, ...untold)) throw there.reason;
  const sandboxPaths = there.status === 'fulfilled' ? there.value : null;
  const isSame = here.value.local.length === 0 && sandboxPaths?.length === 0;
  const state = record === undefined ? 'never' : sandboxPaths === null ? 'unknown' : isSame ? 'same' : 'changed';
  const why = there.status === 'rejected' ? (there.reason as Error).message : null;
  return { state, ...here.value, sandbox: sandboxPaths, sandboxUnknown: why };
}

/** The sandbox cannot be looked into now, and that is no fault. */
const untold = ['lease_held', 'lease_lost', 'sandbox_wrong_state', 'sandbox_paused'] as const;

async function localChanges(checkout: Checkout, record: SyncRecord | undefined, options: SyncOptions) {
  const leftovers = await settleConflicts(checkout, undefined);
  const secretsPolicy = options.secretsPolicy === 'send' ? 'send' : 'skip';
  const snapshot = await takeSnapshot(checkout, { limits: limitsOf(options.limits), secretsPolicy });
  const changes = await changesBetween(checkout, record?.seenTree ?? emptyTree, snapshot.tree);
  const local = changes.filter(({ name }) => isBelow(name, options.paths)).map(({ name }) => nameText(name));
  return { local, leftovers, interrupted: await isInterrupted(checkout) };
}

async function sandboxChanges(
  checkout: Checkout,
  sandbox: Sandbox,
  { record, options }: { readonly record: SyncRecord; readonly options: SyncOptions },
): Promise<string[]> {
  const side = new SandboxSide(sandbox, checkout, options);
  const answer = await side.run(statusScript, [checkout.excludes, record.seenTree, String(namesLimitBytes)]);
  if (answer.error !== undefined) throw refusalOf(answer.error);
  const names = zeroSeparated(Buffer.from(answer.data)).filter((name) => isBelow(name, options.paths));
  const isCommitted = (answer.fields.get('head') ?? 'none') !== (record.seenHead ?? 'none');
  return [...(isCommitted ? ['HEAD'] : []), ...names.map(nameText)];
}
