/** Takes back what the last pull changed here. It needs no server, no sandbox and no lease. */
import { findCheckout, openCheckout, undo } from '../../checkout/index.ts';
import { say, stateDirectory } from '../checkout-call.ts';
import type { AddCommand } from '../command-adder.ts';
import { printable } from '../readable.ts';

interface Options {
  readonly dryRun?: boolean;
}

export const addUndo: AddCommand = (program, actions) => {
  program
    .command('undo')
    .description('take back what the last pull changed in this checkout')
    .option('--dry-run', 'only tell what would be taken back')
    .addHelpText('after', more)
    .action(
      actions.of<Options, []>(async (call) => {
        const { io } = call;
        const found = await findCheckout({ cwd: io.cwd, env: io.env });
        const checkout = await openCheckout(found.root, { env: io.env, stateDirectory: stateDirectory(call) });
        const result = await undo(checkout, { dryRun: call.options.dryRun ?? false });
        for (const warning of result.warnings) say(call, warning);
        await call.print(result, () => {
          const title = `${result.undone ? 'Taken back' : 'Would be taken back'}: ${result.files} files of the ${result.kind} at ${result.at}`;
          const commits = result.commitsRef === null ? [] : [`Its commits are on ${result.commitsRef}.`];
          return [title, ...result.paths.map((path) => `  ${printable(path)}`), ...commits, ''].join('\n');
        });
      }),
    );
};

const more = `
Files are as they were before it, and the branch is where it was. A file that was edited since stops the whole undo,
by name. What the sandbox has is left alone; the next push makes it equal to this checkout again.
`;
