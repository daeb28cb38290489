import { type AddCommand, withConditions } from '../command-adder.ts';

export const addRm: AddCommand = (program, actions) => {
  withConditions(program.command('rm'))
    .alias('delete')
    .description('end a sandbox and remove its files')
    .argument('<sandbox...>', 'ids or names')
    .option('-f, --force', 'also while somebody else holds its lease')
    .action(
      actions.of<{ readonly force?: boolean }, [sandboxes: string[]]>(async (call, names) => {
        const deleted: string[] = [];
        for (const name of names) {
          const sandbox = await call.sandbox(name);
          await sandbox.delete({ ...call.conditions(), ...(call.options.force && { force: true }) });
          deleted.push(sandbox.id);
        }
        await call.print({ deleted }, () => deleted.map((id) => `${id}\n`).join(''));
      }),
    );
};
