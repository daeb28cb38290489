/** The sync engine: brings a checkout into a sandbox and what happened there back. */
export { type Checkout, type OpenCheckoutOptions, openCheckout } from './checkout.ts';
export {
  defaultSyncLimits,
  type PullOptions,
  type PullResult,
  type PushOptions,
  type PushResult,
  type SecretsPolicy,
  type SyncLimits,
  type SyncOptions,
  type SyncProgress,
  type SyncStatus,
} from './options.ts';
export { pull } from './pull.ts';
export type { PullConflict } from './pull-merge.ts';
export { push } from './push.ts';
export { status } from './status.ts';
export { findUndo, type UndoOptions, type UndoResult, undo } from './undo.ts';
export type { UndoRecord } from './undo-record.ts';
