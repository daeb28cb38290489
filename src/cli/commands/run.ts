/** Starts a process. In front its output and exit code come through as they are, and nothing of it is kept afterwards. */
import { collectPair, parseDuration, parseSize } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import { sandboxAndCommand } from '../checkout-words.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';
import { runInFront } from '../process-printing.ts';

interface Options {
  readonly detach?: boolean;
  readonly name?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly user?: string;
  readonly timeout?: number;
  readonly keep?: number;
  readonly shell?: string;
}

export const addRun: AddCommand = (program, actions) => {
  withConditions(program.command('run'))
    .description('start a process; with -d print its id and leave it running')
    .usage('[options] [sandbox] -- <command...>')
    .argument(
      '[words...]',
      'the sandbox (id or name), or nothing for that of this checkout; then the command, run without a shell',
    )
    .option('-d, --detach', 'print its id and leave it running')
    .option('-n, --name <name>', 'a handle of your own')
    .option('-c, --shell <text>', 'run this text with a shell instead')
    .option('-w, --cwd <directory>', 'where it runs')
    .option('-e, --env <name=value>', 'for this process; repeatable', collectPair)
    .option('-u, --user <user>', 'who runs it')
    .option('-t, --timeout <time>', 'such as 30s, 5m; then it is killed', parseDuration)
    .option('--keep <size>', 'how much of its newest output is kept, such as 16m', parseSize)
    .action(
      actions.of<Options, [words: string[]]>(async (call, given) => {
        const { sandbox: sandboxName, command: words } = sandboxAndCommand(call, given);
        const { detach = false, name, cwd, env, user, timeout, keep } = call.options;
        const command = commandOf(words, call.options.shell);
        const sandbox = await sandboxOrHere(call, sandboxName);
        const process = await sandbox.processes.start(command, {
          ...call.conditions(),
          autoCleanup: !detach,
          ...(name !== undefined && { name }),
          ...(cwd !== undefined && { cwd }),
          ...(env !== undefined && { env }),
          ...(user !== undefined && { user }),
          ...(timeout !== undefined && { timeoutMs: timeout }),
          ...(keep !== undefined && { keepBytes: keep }),
        });
        if (detach) await call.print(process.view, () => `${process.id}\n`);
        else await runInFront(call, process);
      }),
    );
};

function commandOf(words: readonly string[], shell: string | undefined): string | readonly string[] {
  if ((shell === undefined) !== (words.length === 0)) return shell ?? words;
  throw new CliError(
    shell === undefined ? 'There is no command to run.' : 'A command and --shell exclude each other.',
    { exitCode: exitCodes.usage, code: 'usage', hint: 'For example: atoll run -d SANDBOX -- python3 -m http.server' },
  );
}
