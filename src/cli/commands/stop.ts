import { parseDuration } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';

export const addStop: AddCommand = (program, actions) => {
  withConditions(program.command('stop'))
    .description('end every process of a sandbox; the files stay')
    .argument('[sandbox]', 'id or name; without it, that of this checkout')
    .option('--grace <time>', 'between TERM and KILL, such as 5s', parseDuration)
    .action(
      actions.of<{ readonly grace?: number }, [sandbox?: string]>(async (call, name) => {
        const { grace } = call.options;
        const sandbox = await sandboxOrHere(call, name);
        await sandbox.stop({ ...call.conditions(), ...(grace !== undefined && { graceMs: grace }) });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}\n`);
      }),
    );
};
