/** The sandbox that a command names, or that of the checkout that we stand in. Never makes one. */
import type { Sandbox } from '../sdk/index.ts';
import { openCheckoutHere } from './checkout-call.ts';
import type { CommandCall } from './command-call.ts';

export async function sandboxOrHere(call: CommandCall, name: string | undefined): Promise<Sandbox> {
  if (name !== undefined) return await call.sandbox(name);
  const { resolver } = await openCheckoutHere(call);
  return (await resolver.get()).sandbox;
}
