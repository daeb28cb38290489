/** Sends the checkout into its sandbox and brings changes back, without running anything. */
import type { Command } from 'commander';
import { type PullSummary, type PushSummary, runCycle } from '../../checkout/index.ts';
import { type CheckoutOptions, cycleOptions, openCheckoutHere, say } from '../checkout-call.ts';
import { withCheckoutOptions } from '../checkout-options.ts';
import type { Actions, AddCommand } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { exitCodes } from '../exit-codes.ts';
import { printable, readableBytes } from '../readable.ts';
import { pathFilters, printStatus } from '../sync-printing.ts';

interface Options extends CheckoutOptions {
  readonly dryRun?: boolean;
}

export const addSync: AddCommand = (program, actions) => {
  const sync = program.command('sync').description('bring this checkout and its sandbox together');
  addDirection(sync, actions, 'push');
  addDirection(sync, actions, 'pull');
  withCheckoutOptions(sync.command('status'))
    .description('what a push and a pull would carry; nothing is changed')
    .argument('[paths...]', 'only these, from the root of the checkout')
    .action(
      actions.of<Options, [paths: string[]]>(async (call, paths) => {
        const filters = pathFilters(paths);
        const checkout = await openCheckoutHere(call);
        const { sandbox } = await checkout.resolver.get();
        await printStatus(call, sandbox.id, await (await checkout.sync()).status(sandbox, filters));
      }),
    );
};

function addDirection(sync: Command, actions: Actions, direction: 'push' | 'pull'): void {
  withCheckoutOptions(sync.command(direction))
    .description(direction === 'push' ? 'send what is here into the sandbox' : 'bring changes in the sandbox back')
    .argument('[paths...]', 'only these, from the root of the checkout')
    .option('--dry-run', 'only tell what would be done')
    .action(actions.of<Options, [paths: string[]]>((call, paths) => run(call, direction, paths)));
}

async function run(call: CommandCall<Options>, direction: 'push' | 'pull', paths: readonly string[]): Promise<void> {
  const filters = pathFilters(paths);
  const checkout = await openCheckoutHere(call);
  // Only a push makes sense with a new sandbox.
  if (direction === 'pull') await checkout.resolver.get();
  const engine = await checkout.sync();
  const { dryRun = false } = call.options;
  const cycle = cycleOptions(call, checkout, { reason: `sync ${direction}`, sync: engine });
  const { sandboxId, result } = await runCycle(cycle, {
    isPushed: false,
    isSetUp: false,
    mayPull: () => false,
    run: ({ sandbox, leaseToken, signal }) =>
      engine[direction](sandbox, { leaseToken, signal, dryRun, onProgress: cycle.onProgress, ...filters }),
  });
  await report(call, sandboxId, result);
}

async function report(call: CommandCall, sandboxId: string, result: PushSummary | PullSummary): Promise<void> {
  for (const warning of result.warnings) say(call, warning);
  if ('conflicts' in result && result.conflicts.length > 0) call.exitCode = exitCodes.conflict;
  await call.print({ sandboxId, ...result }, () => {
    const done = `${result.files} files, ${readableBytes(result.bytes)}\n`;
    if (!('conflicts' in result) || result.conflicts.length === 0) return done;
    const paths = result.conflicts.map(({ path }) => `  ${printable(path)}\n`).join('');
    return `${done}Both sides changed:\n${paths}The sandbox's side is in ${result.folder ?? result.ref}.\n`;
  });
}
