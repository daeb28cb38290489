/** What a tool of `atoll mcp` is, and the two ways to act on the sandbox of the checkout. */
import type { z } from 'zod';
import { type Leased, runCycle } from '../../checkout/index.ts';
import type { Sandbox } from '../../sdk/index.ts';
import { type CheckoutOptions, cycleOptions, openCheckoutHere } from '../checkout-call.ts';
import type { CommandCall } from '../command-call.ts';

export type Call = CommandCall<CheckoutOptions>;

export interface Tool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: z.ZodObject;
  readonly run: (call: Call, given: never, signal: AbortSignal) => Promise<unknown>;
}

/** Ties what a tool takes to what it does with it. */
export function tool<Schema extends z.ZodObject>(given: {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: Schema;
  readonly run: (call: Call, given: z.output<Schema>, signal: AbortSignal) => Promise<unknown>;
}): Tool {
  return given as unknown as Tool;
}

/** Without the lease; there must be a sandbox. */
export async function looking<Result>(call: Call, signal: AbortSignal, look: (sandbox: Sandbox) => Promise<Result>) {
  const { resolver } = await openCheckoutHere(call, { signal });
  return await look((await resolver.get()).sandbox);
}

/** With the lease; nothing is sent or brought back. */
export async function changing<Result>(
  call: Call,
  reason: string,
  signal: AbortSignal,
  change: (leased: Leased) => Promise<Result>,
): Promise<Result> {
  const checkout = await openCheckoutHere(call, { signal });
  const cycle = await runCycle(cycleOptions(call, checkout, { reason, sync: undefined, signal }), {
    run: change,
    mayPull: () => false,
    isSetUp: false,
  });
  return cycle.result;
}
