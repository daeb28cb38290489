import { parseDuration } from '../argument-parsers.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';

interface Options {
  readonly signal?: string;
  readonly grace?: number;
  readonly all?: boolean;
}

export const addKill: AddCommand = (program, actions) => {
  withConditions(program.command('kill'))
    .description('send a signal to a process and everything it started')
    .argument('<sandbox>', 'id or name')
    .argument('[process]', 'id or name')
    .option('-s, --signal <signal>', 'TERM unless told; KILL with --all')
    .option('--grace <time>', 'then KILL, if something is left', parseDuration)
    .option('--all', 'every process of the sandbox')
    .action(
      actions.of<Options, [sandbox: string, process?: string]>(async (call, sandboxName, processName) => {
        const { signal, grace, all = false } = call.options;
        if (all === (processName !== undefined)) {
          throw new CliError('Name one process, or give --all.', {
            exitCode: exitCodes.usage,
            code: 'usage',
            hint: '',
          });
        }
        const { processes } = await call.sandbox(sandboxName);
        const wanted = { ...(signal !== undefined && { signal }), ...(grace !== undefined && { graceMs: grace }) };
        const conditions = call.conditions();
        if (processName === undefined) {
          const count = await processes.killAll({ ...conditions, ...wanted });
          await call.print({ count }, () => `${count}\n`);
          return;
        }
        const process = await (await processes.get(processName)).kill({ ...conditions, ...wanted });
        await call.print(process.view, () => '');
      }),
    );
};
