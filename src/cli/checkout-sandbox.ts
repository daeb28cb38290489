/** The sandbox that a command names, or that of the checkout that we stand in. Never makes one. */
import type { Process, Sandbox } from '../sdk/index.ts';
import { openCheckoutHere } from './checkout-call.ts';
import { usage } from './checkout-words.ts';
import type { CommandCall } from './command-call.ts';

export async function sandboxOrHere(call: CommandCall, name: string | undefined): Promise<Sandbox> {
  if (name !== undefined) return await call.sandbox(name);
  const { resolver } = await openCheckoutHere(call);
  return (await resolver.get()).sandbox;
}

/** Two words are a sandbox and a process; one is a process of the checkout's. */
export async function sandboxAndProcess(call: CommandCall, words: readonly string[]): Promise<Process> {
  if (words.length > 2) throw usage('It is one sandbox and one process.', 'For example: atoll logs SANDBOX PROCESS');
  const sandbox = await sandboxOrHere(call, words.length === 2 ? words[0] : undefined);
  return await sandbox.processes.get(words.at(-1) ?? '');
}
