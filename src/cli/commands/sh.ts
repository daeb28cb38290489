/** Opens a terminal in a sandbox. */
import { collectPair } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import { sandboxAndCommand } from '../checkout-words.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';
import { visitTerminal } from '../terminal-visit.ts';

interface Options {
  readonly id?: string;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly user?: string;
}

export const addSh: AddCommand = (program, actions) => {
  withConditions(program.command('sh'))
    .description('open a terminal in a sandbox; Ctrl-P Ctrl-Q leaves it running')
    .usage('[options] [sandbox] [-- <command...>]')
    .argument(
      '[words...]',
      'the sandbox (id or name), or nothing for that of this checkout; then what runs instead of a shell',
    )
    .option('--id <id>', 'a handle of your own: the same terminal again, if it is there')
    .option('-w, --cwd <directory>', 'where it runs')
    .option('-e, --env <name=value>', 'for this terminal; repeatable', collectPair)
    .option('-u, --user <user>', 'who runs it')
    .action(
      actions.of<Options, [words: string[]]>(async (call, words) => {
        const { sandbox: sandboxName, command } = sandboxAndCommand(call, words);
        const { id, cwd, env, user } = call.options;
        const { terminal: local, env: ours } = call.io;
        const term = local.isTerminal ? ours['TERM'] : undefined;
        const sandbox = await sandboxOrHere(call, sandboxName);
        const terminal = await sandbox.terminals.open({
          ...call.conditions(),
          ...local.size(),
          env: { ...(term !== undefined && { TERM: term }), ...env },
          ...(id !== undefined && { id }),
          ...(command.length > 0 && { command: [...command] }),
          ...(cwd !== undefined && { cwd }),
          ...(user !== undefined && { user }),
        });
        await visitTerminal(call, terminal);
        if (call.exitCode === exitCodes.done && terminal.view.running) {
          await call.note(`Left ${terminal.id} running; it is there again with --id ${id ?? terminal.id}.`);
        }
      }),
    );
};
