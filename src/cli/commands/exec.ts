/** Runs one command. Its bytes and its exit code come through exactly; nothing of ours is mixed into them. */
import { execLimits } from '../../protocol/index.ts';
import { collectPair, parseDuration, parseSize } from '../argument-parsers.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { printResult } from '../exec-printing.ts';
import { exitCodes } from '../exit-codes.ts';

interface Options {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly user?: string;
  readonly timeout?: number;
  readonly outputLimit?: number;
  readonly stdin?: boolean;
  readonly shell?: string;
}

export const addExec: AddCommand = (program, actions) => {
  withConditions(program.command('exec'))
    .description('run one command in a sandbox; its output and exit code are passed through')
    .usage('[options] <sandbox> -- <command...>')
    .argument('<sandbox>', 'id or name')
    .argument('[command...]', 'the program and its arguments, run without a shell')
    .option('-c, --shell <text>', 'run this text with a shell instead')
    .option('-w, --cwd <directory>', 'where it runs')
    .option('-e, --env <name=value>', 'for this command; repeatable', collectPair)
    .option('-u, --user <user>', 'who runs it')
    .option('-t, --timeout <time>', 'such as 30s, 5m; then it is killed', parseDuration)
    .option('--output-limit <size>', 'of stdout and stderr each, such as 1m', parseSize)
    .option('-i, --stdin', 'give it our standard input')
    .action(
      actions.of<Options, [sandbox: string, command: string[]]>(async (call, sandboxName, words) => {
        const { cwd, env, user, timeout, outputLimit, stdin } = call.options;
        const command = commandOf(words, call.options.shell);
        const stdinBytes = stdin ? await call.io.readStdin(execLimits.stdinBytes) : undefined;
        const sandbox = await call.sandbox(sandboxName);
        const interrupted = new AbortController();
        const stopListening = call.io.onInterrupt(() => interrupted.abort());
        try {
          const result = await sandbox.exec(command, {
            ...call.conditions(),
            signal: interrupted.signal,
            ...(cwd !== undefined && { cwd }),
            ...(env !== undefined && { env }),
            ...(user !== undefined && { user }),
            ...(timeout !== undefined && { timeoutMs: timeout }),
            ...(outputLimit !== undefined && { outputLimitBytes: outputLimit }),
            ...(stdinBytes && { stdin: stdinBytes }),
          });
          await printResult(call, result);
        } finally {
          stopListening();
        }
      }),
    );
};

function commandOf(words: readonly string[], shell: string | undefined): string | readonly string[] {
  if ((shell === undefined) === (words.length === 0)) {
    throw new CliError(
      shell === undefined ? 'There is no command to run.' : 'A command and --shell exclude each other.',
      {
        exitCode: exitCodes.usage,
        code: 'usage',
        hint: 'For example: atoll exec SANDBOX -- ls -l /tmp, or: atoll exec SANDBOX -c "ls | wc -l"',
      },
    );
  }
  return shell ?? words;
}
