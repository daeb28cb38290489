import { parseDuration } from '../argument-parsers.ts';
import { sandboxAndProcess, sandboxOrHere } from '../checkout-sandbox.ts';
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
    .usage('[options] [sandbox] <process>')
    .argument(
      '[words...]',
      'the sandbox (id or name), or nothing for that of this checkout; then the process, unless --all',
    )
    .option('-s, --signal <signal>', 'TERM unless told; KILL with --all')
    .option('--grace <time>', 'then KILL, if something is left', parseDuration)
    .option('--all', 'every process of the sandbox')
    .action(
      actions.of<Options, [words: string[]]>(async (call, words) => {
        const { signal, grace, all = false } = call.options;
        if (all ? words.length > 1 : words.length === 0 || words.length > 2) {
          throw new CliError('Name one process, or give --all.', {
            exitCode: exitCodes.usage,
            code: 'usage',
            hint: '',
          });
        }
        const wanted = { ...(signal !== undefined && { signal }), ...(grace !== undefined && { graceMs: grace }) };
        const conditions = call.conditions();
        if (all) {
          const { processes } = await sandboxOrHere(call, words[0]);
          const count = await processes.killAll({ ...conditions, ...wanted });
          await call.print({ count }, () => `${count}\n`);
          return;
        }
        const process = await (await sandboxAndProcess(call, words)).kill({ ...conditions, ...wanted });
        await call.print(process.view, () => '');
      }),
    );
};
