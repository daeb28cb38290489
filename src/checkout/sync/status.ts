import type { Sandbox } from '../../sdk/index.ts';
import type { Checkout } from './checkout.ts';
import type { SyncOptions, SyncStatus } from './options.ts';
export declare function status(checkout: Checkout, sandbox: Sandbox, options?: SyncOptions): Promise<SyncStatus>;
