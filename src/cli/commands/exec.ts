/**
 * Runs one command, in the sandbox that is named, or in that of the checkout with changes sent in and brought back. Its bytes and its exit code come through exactly; nothing of ours is
 * mixed into them.
 */
import { execLimits, isPlatformError } from '../../protocol/index.ts';
import type { Sandbox } from '../../sdk/index.ts';
import { collectPair, collectText, parseDuration, parseSize } from '../argument-parsers.ts';
import { type CheckoutExecOptions, execInCheckout } from '../checkout-exec.ts';
import { withCheckoutOptions } from '../checkout-options.ts';
import { sandboxAndCommand, usage } from '../checkout-words.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { printResult } from '../exec-printing.ts';
import { exitCodes } from '../exit-codes.ts';

interface Options extends CheckoutExecOptions {
  readonly outputLimit?: number;
  readonly shell?: string;
}

export const addExec: AddCommand = (program, actions) => {
  const command = withConditions(program.command('exec'))
    .description(
      'run one command; without a sandbox, in that of this checkout: changes go in, it runs, changes come back',
    )
    .usage('[options] [sandbox] -- <command...>')
    .argument('[words...]', 'the sandbox (id or name), or nothing; then the command, run without a shell')
    .option('-c, --shell <text>', 'run this text with a shell instead')
    .option('-w, --cwd <directory>', 'where it runs')
    .option('-e, --env <name=value>', 'for this command; repeatable', collectPair)
    .option('-u, --user <user>', 'who runs it')
    .option('-t, --timeout <time>', 'such as 30s, 5m; then it is killed', parseDuration)
    .option('--output-limit <size>', 'of stdout and stderr each, such as 1m', parseSize)
    .option('-i, --stdin', 'give it our standard input')
    .addHelpText('after', examples);
  withCheckoutOptions(command)
    .option('--reset', 'of a checkout: end its sandbox first and make a new one')
    .option('--no-pull', 'of a checkout: leave what the command changes in the sandbox')
    .option('--pull-only', 'of a checkout: send nothing in, only bring back what the command changes')
    .option('--path <path>', 'of a checkout: sync only this, from its root; repeatable', collectText)
    .option('--dry-run', 'of a checkout: only tell what would be sent and brought back')
    .option('--no-pull-on-timeout', 'of a checkout: the same, only when it took too long')
    .option('-d, --detach', 'of a checkout: print the id of the process and leave it running')
    .option('--attach <process>', 'of a checkout: go on with a command that was left running')
    .option('-T, --tty', 'of a checkout: give it a terminal')
    .action(
      actions.of<Options, [words: string[]]>(async (call, given) => {
        const { sandbox: sandboxName, command: words } = sandboxAndCommand(call, given);
        if (sandboxName === undefined) {
          const { attach, shell, dryRun } = call.options;
          refuseOpposites(call.options);
          const needsCommand = attach === undefined && !(dryRun && words.length === 0 && shell === undefined);
          await execInCheckout(call, needsCommand ? commandOf(words, shell) : []);
          return;
        }
        refuseCheckoutOptions(call.options);
        const { cwd, env, user, timeout, outputLimit, stdin } = call.options;
        const command = commandOf(words, call.options.shell);
        const stdinBytes = stdin ? await call.io.readStdin(execLimits.stdinBytes) : undefined;
        const sandbox = await namedSandbox(call, sandboxName, given);
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

const examples = `
Examples:
  atoll exec -- npm test              in the sandbox of this checkout
  atoll exec -c 'npm ci && npm test'  the same, with a shell
  atoll exec box -- ls -l /tmp        in the sandbox "box"; nothing is sent or brought back
`;

function commandOf(words: readonly string[], shell: string | undefined): string | readonly string[] {
  if ((shell === undefined) !== (words.length === 0)) return shell ?? words;
  throw usage(
    shell === undefined ? 'There is no command to run.' : 'A command and --shell exclude each other.',
    'For example: atoll exec -- npm test, or: atoll exec SANDBOX -c "ls | wc -l"',
  );
}

/** Whoever forgets `--` means the sandbox of the checkout, and gets to know how to say so. */
async function namedSandbox(call: CommandCall, name: string, words: readonly string[]): Promise<Sandbox> {
  try {
    return await call.sandbox(name);
  } catch (error) {
    if (call.dashed !== undefined || !isPlatformError(error, 'sandbox_not_found')) throw error;
    const hint = `In the sandbox of this checkout: atoll exec -- ${words.join(' ')}`;
    throw new CliError(error.message, { exitCode: exitCodes.notFound, code: error.code, hint });
  }
}

function refuseOpposites({ pull, pullOnly, sync, detach }: CheckoutExecOptions): void {
  if (!pullOnly || (pull !== false && sync !== false && !detach)) return;
  throw usage('--pull-only brings changes back, and another option says not to.', 'Leave one of both out.');
}

/** They would be silently ignored otherwise. */
function refuseCheckoutOptions(options: CheckoutExecOptions): void {
  const { reset, pull, detach, attach, tty, sync, pullOnly, dryRun, path } = options;
  const isGiven = reset || pull === false || detach || attach !== undefined || tty || sync === false;
  if (!isGiven && !pullOnly && !dryRun && path === undefined) return;
  throw usage('This option is for the sandbox of a checkout.', 'Leave the sandbox out: atoll exec --reset -- npm test');
}
