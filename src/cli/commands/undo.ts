/**
 * Takes back the last thing that was changed on this machine: what the last pull changed in this checkout, or what the last apply of a plan changed
 * in its targets, whichever is newer. It needs no server, no sandbox and no lease.
 */
import { findCheckout, findUndo, lastApplied, openCheckout, undo, undoLast } from '../../checkout/index.ts';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import { applyText } from '../apply-words.ts';
import { applyOptions, say, stateDirectory } from '../checkout-call.ts';
import type { AddCommand } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { exitOfApply, withPlanExit } from '../plan-exit.ts';
import { printable } from '../readable.ts';

interface Options {
  readonly dryRun?: boolean;
}

type Checkout = Awaited<ReturnType<typeof openCheckout>>;

export const addUndo: AddCommand = (program, actions) => {
  program
    .command('undo')
    .description('take back what the last pull changed in this checkout, or the last apply of a plan on this machine')
    .option('--dry-run', 'only tell what would be taken back')
    .addHelpText('after', more)
    .action(
      actions.of<Options, []>(async (call) => {
        const checkout = await checkoutHere(call);
        const pulledAtMs = checkout === undefined ? undefined : await findUndo(checkout);
        const applied = await lastApplied(applyOptions(call));
        const appliedAtMs = applied === undefined ? undefined : Date.parse(applied.finishedAt);
        if (appliedAtMs !== undefined && appliedAtMs >= (pulledAtMs ?? 0)) {
          return await withPlanExit(call, () => undoApply(call));
        }
        if (checkout === undefined) throw new PlatformError('undo_nothing', 'There is nothing to take back here.');
        await undoPull(call, checkout);
      }),
    );
};

async function undoApply(call: CommandCall<Options>): Promise<void> {
  const dryRun = call.options.dryRun ?? false;
  const result = dryRun ? await lastApplied(applyOptions(call)) : await undoLast(applyOptions(call));
  if (result === undefined) throw new PlatformError('undo_nothing', 'There is nothing to take back here.');
  await call.print(
    { ...result, dryRun },
    () => `${dryRun ? 'Would be taken back:\n' : ''}${applyText({ ...result, dryRun })}`,
  );
  if (!dryRun) call.exitCode = exitOfApply(result);
}

async function undoPull(call: CommandCall<Options>, checkout: Checkout): Promise<void> {
  const result = await undo(checkout, { dryRun: call.options.dryRun ?? false });
  for (const warning of result.warnings) say(call, warning);
  await call.print(result, () => {
    const title = `${result.undone ? 'Taken back' : 'Would be taken back'}: ${result.files} files of the ${result.kind} at ${result.at}`;
    const commits = result.commitsRef === null ? [] : [`Its commits are on ${result.commitsRef}.`];
    return [title, ...result.paths.map((path) => `  ${printable(path)}`), ...commits, ''].join('\n');
  });
}

/** undefined: we stand in none; an apply can be taken back from anywhere. */
async function checkoutHere(call: CommandCall): Promise<Checkout | undefined> {
  const { io } = call;
  try {
    const found = await findCheckout({ cwd: io.cwd, env: io.env });
    return await openCheckout(found.root, { env: io.env, stateDirectory: stateDirectory(call) });
  } catch (error) {
    if (isPlatformError(error, 'checkout_unusable', 'sync_not_possible')) return undefined;
    throw error;
  }
}

const more = `
Of a pull: files are as they were before it, and the branch is where it was. A file that was edited since stops the whole
undo, by name. What the sandbox has is left alone; the next push makes it equal to this checkout again.
Of an apply: every target is as it was before, with its branch. A target that was edited since is left and named, the
others are taken back; when it is settled, undo goes on (exit code 5 until then).
`;
