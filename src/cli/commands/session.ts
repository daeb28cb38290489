/** Persistent shells of a sandbox, one verb each. A command's output and exit code come through as they are. */
import type { SessionView } from '../../protocol/index.ts';
import { execLimits } from '../../protocol/index.ts';
import type { Session } from '../../sdk/index.ts';
import { collectPair, collectText, parseDuration, parseSize } from '../argument-parsers.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { printResult } from '../exec-printing.ts';
import { exitCodes } from '../exit-codes.ts';
import { runInFront } from '../process-printing.ts';
import { readableTable, readableWhen } from '../readable.ts';

interface CreateOptions {
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly user?: string;
  readonly timeout?: number;
  readonly shell?: string;
}
interface ExecOptions extends Pick<CreateOptions, 'cwd' | 'env' | 'timeout'> {
  readonly queueTimeout?: number;
  readonly outputLimit?: number;
  readonly stdin?: boolean;
}
interface RunOptions extends Pick<CreateOptions, 'cwd' | 'env' | 'timeout'> {
  readonly detach?: boolean;
  readonly outlive?: boolean;
  readonly name?: string;
  readonly keep?: number;
}
type Named = [sandbox: string, session: string];
type Text = [...Named, words: string[]];

export const addSession: AddCommand = (program, actions) => {
  const session = program
    .command('session')
    .description('persistent shells: what one command sets, the next one finds');
  const verb = (name: string, description: string) =>
    session.command(name).description(description).argument('<sandbox>', 'id or name');
  const named = (name: string, description: string) =>
    withConditions(verb(name, description)).argument('<session>', 'id or name');

  withConditions(verb('create', 'start a shell and print its id'))
    .argument('[name]', 'a handle of your own')
    .option('-w, --cwd <directory>', 'where it begins')
    .option('-e, --env <name=value>', "on top of the sandbox's; repeatable", collectPair)
    .option('-u, --user <user>', 'who runs it')
    .option('-t, --timeout <time>', 'of commands that bring none of their own, such as 5m', parseDuration)
    .option('--shell <program>', 'another bash than that of the sandbox')
    .action(
      actions.of<CreateOptions, [sandbox: string, name?: string]>(async (call, sandboxName, name) => {
        const { timeout, env, cwd, user, shell } = call.options;
        const { sessions } = await call.sandbox(sandboxName);
        const made = await sessions.create({
          ...call.conditions(),
          ...given({ name, cwd, env, user, shell, timeoutMs: timeout }),
        });
        await call.print(made.view, () => `${made.id}\n`);
      }),
    );

  named('exec', 'run a text in the shell; its output and exit code are passed through')
    .usage('[options] <sandbox> <session> -- <text...>')
    .argument('<text...>', 'what the shell reads, its words joined by spaces')
    .option('-w, --cwd <directory>', 'for this command')
    .option('-e, --env <name=value>', 'for this command; repeatable', collectPair)
    .option('-t, --timeout <time>', 'such as 30s, 5m; then it is killed, and the session with it', parseDuration)
    .option('--queue-timeout <time>', 'how long it may wait for its turn', parseDuration)
    .option('--output-limit <size>', 'of stdout and stderr each, such as 1m', parseSize)
    .option('-i, --stdin', 'give it our standard input')
    .action(
      actions.of<ExecOptions, Text>(async (call, sandboxName, sessionName, words) => {
        const { cwd, env, timeout, queueTimeout, outputLimit } = call.options;
        const stdin = call.options.stdin ? await call.io.readStdin(execLimits.stdinBytes) : undefined;
        const shell = await sessionOf(call, sandboxName, sessionName);
        const options = { cwd, env, stdin, timeoutMs: timeout, queueTimeoutMs: queueTimeout };
        const result = await shell.exec(words.join(' '), {
          ...call.conditions(),
          ...given({ ...options, outputLimitBytes: outputLimit }),
        });
        await printResult(call, result);
        const { sessionEnded: end } = result;
        if (end !== null && !call.isJson) await call.note(`atoll: the session has ended (${describeEnd(end)}).`);
      }),
    );

  named('run', 'start a process from a copy of the shell; with -d print its id and leave it running')
    .usage('[options] <sandbox> <session> -- <text...>')
    .argument('<text...>', 'what the shell reads, its words joined by spaces')
    .option('-d, --detach', 'print its id and leave it running')
    .option('--outlive', 'it goes on when the session ends')
    .option('-n, --name <name>', 'a handle of your own')
    .option('-w, --cwd <directory>', 'where it runs')
    .option('-e, --env <name=value>', 'for this process; repeatable', collectPair)
    .option('-t, --timeout <time>', 'such as 30s, 5m; then it is killed', parseDuration)
    .option('--keep <size>', 'how much of its newest output is kept, such as 16m', parseSize)
    .action(
      actions.of<RunOptions, Text>(async (call, sandboxName, sessionName, words) => {
        const { detach = false, outlive = false, name, cwd, env, timeout, keep } = call.options;
        const { processes } = await sessionOf(call, sandboxName, sessionName);
        const process = await processes.start(words.join(' '), {
          ...call.conditions(),
          ...given({ name, cwd, env, timeoutMs: timeout, keepBytes: keep }),
          autoCleanup: !detach,
          detach: outlive,
        });
        if (detach) await call.print(process.view, () => `${process.id}\n`);
        else await runInFront(call, process);
      }),
    );

  named('env', 'set and unset variables of the shell, all or none')
    .argument('[pair...]', 'NAME=VALUE')
    .option('--unset <name>', 'repeatable', collectText)
    .action(
      actions.of<{ readonly unset?: string[] }, Text>(async (call, sandboxName, sessionName, pairs) => {
        const env: Record<string, string | null> = {};
        for (const pair of pairs) Object.assign(env, collectPair(pair));
        for (const name of call.options.unset ?? []) env[name] = null;
        if (Object.keys(env).length === 0) {
          const hint = 'For example: atoll session env SANDBOX SESSION CI=1 --unset DEBUG';
          throw new CliError('There is nothing to set.', { exitCode: exitCodes.usage, code: 'usage', hint });
        }
        await (await sessionOf(call, sandboxName, sessionName)).setEnv(env, call.conditions());
        await call.print({ set: Object.keys(env) }, () => '');
      }),
    );

  verb('ls', 'list sessions: those that live first')
    .option('-q, --quiet', 'ids only')
    .action(
      actions.of<{ readonly quiet?: boolean }, [sandbox: string]>(async (call, sandboxName) => {
        const found = await (await call.sandbox(sandboxName)).sessions.list();
        const views = found.map(({ view }) => view);
        await call.print({ items: views }, () =>
          call.options.quiet ? views.map(({ id }) => `${id}\n`).join('') : tableOf(views, call.io.nowMs()),
        );
      }),
    );

  named('rm', 'kill a session with everything of it, and forget it').action(
    actions.of<object, Named>(async (call, sandboxName, sessionName) => {
      const shell = await sessionOf(call, sandboxName, sessionName);
      await shell.delete(call.conditions());
      await call.print({ id: shell.id }, () => '');
    }),
  );
};

async function sessionOf(call: CommandCall, sandboxName: string, sessionName: string): Promise<Session> {
  return await (await call.sandbox(sandboxName)).sessions.get(sessionName);
}

type Given<Value> = { [Key in keyof Value]?: Exclude<Value[Key], undefined> };

/** Only the options that were given. */
function given<Value extends object>(options: Value): Given<Value> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Given<Value>;
}

function tableOf(views: readonly SessionView[], nowMs: number): string {
  const rows = views.map((view) => [
    view.id,
    view.name ?? '-',
    stateOf(view),
    String(view.queued),
    readableWhen(view.startedAt, nowMs),
    view.cwd ?? '-',
  ]);
  return readableTable(['ID', 'NAME', 'STATE', 'QUEUED', 'STARTED', 'CWD'], rows);
}

function stateOf({ end, current }: SessionView): string {
  if (end !== null) return describeEnd(end);
  return current === null ? 'idle' : 'busy';
}

function describeEnd({ reason, exitCode }: NonNullable<SessionView['end']>): string {
  return `${reason.replaceAll('_', ' ')}${exitCode === null ? '' : `, exit ${exitCode}`}`;
}
