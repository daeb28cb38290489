import type { Sandbox } from '../../sdk/index.ts';
import type { Checkout } from './checkout.ts';
import type { PullOptions, PullResult } from './options.ts';
export declare function pull(checkout: Checkout, sandbox: Sandbox, options?: PullOptions): Promise<PullResult>;
