import { parseDurationOrNever } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';

export const addStart: AddCommand = (program, actions) => {
  withConditions(program.command('start'))
    .description('begin a new life on the files of a stopped sandbox')
    .argument('<sandbox>', 'id or name')
    .option('--expires-in <time>', 'such as 30m, 2h, never', parseDurationOrNever)
    .action(
      actions.of<{ readonly expiresIn?: number | null }, [sandbox: string]>(async (call, name) => {
        const { expiresIn } = call.options;
        const sandbox = await call.sandbox(name);
        await sandbox.start({ ...call.conditions(), ...(expiresIn !== undefined && { expiresInMs: expiresIn }) });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}, generation ${sandbox.generation}\n`);
      }),
    );
};
