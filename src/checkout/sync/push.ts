import type { Sandbox } from '../../sdk/index.ts';
import type { Checkout } from './checkout.ts';
import type { PushOptions, PushResult } from './options.ts';
export declare function push(checkout: Checkout, sandbox: Sandbox, options?: PushOptions): Promise<PushResult>;
