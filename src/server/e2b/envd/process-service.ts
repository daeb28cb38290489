/**
 * `process.Process`: commands and terminals of a sandbox. What is started here is an ordinary process or terminal of the sandbox; it goes on whoever
 * disconnects, and its record and output are removed some time after its end.
 */
import { assert } from '../../../base/index.ts';
import { execLimits, isPlatformError, processLimits, terminalLimits } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import { type Account, type Accounts, placeOf, templateDefaults } from './accounts.ts';
import { EnvdError } from './envd-error.ts';
import type { Message } from './messages.ts';
import { dataEvent, eventsOfProcess, eventsOfTerminal, startEvent } from './process-events.ts';
import type { Call, Method } from './rpc.ts';
import { type Run, Runs, runOfProcess, runOfTerminal, type Selector } from './runs.ts';

interface Size {
  readonly cols: number;
  readonly rows: number;
}

interface StartInput {
  readonly process?: {
    readonly cmd: string;
    readonly args: readonly string[];
    readonly envs: Readonly<Record<string, string>>;
    readonly cwd?: string;
  };
  readonly pty?: { readonly size?: Size };
  readonly tag?: string;
  readonly stdin?: boolean;
}

interface RunInput {
  readonly process?: Selector;
  readonly input?: { readonly stdin?: string; readonly pty?: string };
  readonly pty?: { readonly size?: Size };
  readonly signal?: string;
}

/** What every process finds, unless its sandbox or its caller says otherwise. */
export const defaultEnvironment = { E2B_SANDBOX: 'true' } as const;
const signals: Readonly<Record<string, string>> = { SIGNAL_SIGKILL: 'KILL', SIGNAL_SIGTERM: 'TERM' };

export class ProcessService {
  readonly #control: ControlPort;
  readonly #accounts: Accounts;
  readonly #runs: Runs;

  constructor(control: ControlPort, accounts: Accounts) {
    this.#control = control;
    this.#accounts = accounts;
    this.#runs = new Runs(control);
  }

  methods(): Readonly<Record<string, Method>> {
    const unary = (input: string, run: (call: Call, input: RunInput) => Promise<void>): Method => ({
      kind: 'unary',
      input: `process.${input}`,
      output: 'process.Empty',
      run: async (call, message) => {
        await run(call, message);
        return {};
      },
    });
    const stream = (input: string, run: (call: Call, input: Message) => AsyncIterable<Message>): Method => ({
      kind: 'server stream',
      input: `process.${input}`,
      output: 'process.EventResponse',
      keepalive: { event: { keepalive: {} } },
      run,
    });
    return {
      List: {
        kind: 'unary',
        input: 'process.Empty',
        output: 'process.ListResponse',
        run: (call) => this.#list(call),
      },
      Start: stream('StartRequest', (call, input) => this.#start(call, input)),
      Connect: stream('ConnectRequest', (call, input) => this.#connect(call, input)),
      Update: unary('UpdateRequest', (call, input) => this.#update(call, input)),
      SendInput: unary('SendInputRequest', (call, { process, input }) => this.#input(call, process, input)),
      SendSignal: unary('SendSignalRequest', (call, input) => this.#signal(call, input)),
      CloseStdin: unary('CloseStdinRequest', (call, { process }) => this.#close(call, process)),
      StreamInput: {
        kind: 'client stream',
        input: 'process.StreamInputRequest',
        output: 'process.Empty',
        run: (call, inputs) => this.#streamInput(call, inputs),
      },
    };
  }

  async #list(call: Call): Promise<Message> {
    const runs = await this.#runs.list(call);
    const processes = runs.map((run) => {
      const words = typeof run.command === 'string' ? ['/bin/bash', '-c', run.command] : (run.command ?? []);
      const [cmd = '/bin/bash', ...args] = words;
      const config = { cmd, args, envs: this.#runs.envsOf(run), cwd: run.cwd };
      return { config, pid: run.pid, ...(run.tag !== null && { tag: run.tag }) };
    });
    return { processes };
  }

  async *#start(call: Call, input: StartInput): AsyncGenerator<Message, void> {
    const { process, pty } = input;
    if (process === undefined || process.cmd === '') throw new EnvdError('invalid_argument', 'There is no command.');
    const isTerminal = pty !== undefined;
    const run = await this.#asUser(call, process.cwd, (user, cwd) => {
      const common = {
        command: [process.cmd, ...process.args],
        cwd,
        env: { ...defaultEnvironment, ...process.envs },
        user,
        ...timeLimit(call),
      };
      return isTerminal ? this.#openTerminal(call, input, common) : this.#startProcess(call, input, common);
    });
    this.#runs.started(run.id, process.envs);
    yield* this.#follow(call, run, { fromStart: true });
  }

  async #startProcess(call: Call, input: StartInput, common: Common): Promise<Run> {
    const view = await this.#control.processes.start(
      call.caller,
      call.sandboxId,
      {},
      {
        ...common,
        ...(input.tag !== undefined && { name: nameOf(input.tag) }),
        stdin: input.stdin === false ? 'closed' : 'open',
        graceMs: 0,
        keepBytes: processLimits.keepBytesDefault,
        autoCleanup: true,
      },
    );
    return runOfProcess(view);
  }

  async #openTerminal(call: Call, { pty, tag }: StartInput, common: Common): Promise<Run> {
    const { view, created } = await this.#control.terminals.open(
      call.caller,
      call.sandboxId,
      {},
      {
        ...common,
        ...(tag !== undefined && { id: nameOf(tag) }),
        ...sizeOf(pty?.size),
      },
    );
    if (!created) throw new EnvdError('already_exists', `A terminal with the tag ${tag} is there.`);
    return runOfTerminal(view);
  }

  /** Without a name it is the template's user where the sandbox has that one, else root. */
  async #asUser(call: Call, cwd: string | undefined, start: (user: string, cwd: string) => Promise<Run>): Promise<Run> {
    const wanted = call.user ?? templateDefaults.user;
    const isPlain = cwd === undefined || cwd === '' || cwd.startsWith('/');
    const account = isPlain ? undefined : await this.#accounts.userOf(call, call.user);
    const place = account === undefined ? cwd || templateDefaults.directory : placeOf(cwd!, account);
    try {
      return await start(wanted, place);
    } catch (error) {
      if (isPlatformError(error, 'cwd_not_usable')) {
        if (cwd === undefined || cwd === '') return await start(wanted, '/');
        throw new EnvdError('invalid_argument', `cwd '${place}' does not exist`);
      }
      if (!isPlatformError(error, 'user_not_usable')) throw error;
      if (call.user !== undefined) throw new EnvdError('unauthenticated', `invalid username: '${call.user}'`);
      const { name, home }: Account = await this.#accounts.userOf(call, 'root');
      return await start(name, cwd || home);
    }
  }

  async *#connect(call: Call, { process: selector = {} }: RunInput): AsyncGenerator<Message, void> {
    const run = await this.#runs.find(call, selector);
    if (run.exit === null) return yield* this.#follow(call, run, { fromStart: false });
    yield startEvent(run.pid);
    yield dataEvent.end(run.exit);
  }

  async *#follow(call: Call, run: Run, options: { readonly fromStart: boolean }): AsyncGenerator<Message, void> {
    const events =
      run.kind === 'process'
        ? eventsOfProcess(this.#control.processes, call, { run, ...options })
        : await eventsOfTerminal(this.#control.terminals, call, { run, ...options });
    yield startEvent(run.pid);
    for await (const { message, exit } of events) {
      if (exit !== undefined) this.#runs.ended(call.sandboxId, run, exit);
      yield message;
    }
  }

  async #update(call: Call, { process = {}, pty }: RunInput): Promise<void> {
    const run = await this.#runs.get(call, process);
    if (pty?.size === undefined) return;
    if (run.kind !== 'terminal') throw new EnvdError('internal', `process ${run.pid} has no pty`);
    const address = { sandboxId: call.sandboxId, terminal: run.id };
    await this.#control.terminals.resize(call.caller, address, {}, sizeOf(pty.size));
  }

  async #input(call: Call, selector: Selector = {}, input: RunInput['input'] = {}): Promise<void> {
    await this.#write(call, await this.#runs.get(call, selector), input);
  }

  async #write(call: Call, run: Run, { stdin, pty }: NonNullable<RunInput['input']>): Promise<void> {
    const { caller, sandboxId } = call;
    if (stdin !== undefined) {
      if (run.kind === 'terminal') throw new EnvdError('internal', 'The input of a terminal is pty, not stdin.');
      const body = { stdin: { base64: stdin }, close: false };
      await this.#control.processes.writeStdin(caller, { sandboxId, process: run.id }, {}, body);
    } else if (pty !== undefined) {
      if (run.kind === 'process') throw new EnvdError('internal', `process ${run.pid} has no pty`);
      const bytes = Buffer.from(pty, 'base64');
      await this.#control.terminals.write(caller, { sandboxId, terminal: run.id }, {}, bytes);
    } else throw new EnvdError('unimplemented', 'There is no input.');
  }

  async #streamInput(call: Call, inputs: AsyncIterable<Message>): Promise<Message> {
    let run: Run | undefined;
    for await (const message of inputs) {
      const { start, data } = message as { start?: { process?: Selector }; data?: { input?: RunInput['input'] } };
      if (start !== undefined) run = await this.#runs.get(call, start.process ?? {});
      if (data === undefined) continue;
      if (run === undefined) throw new EnvdError('invalid_argument', 'The first message says which process is meant.');
      await this.#write(call, run, data.input ?? {});
    }
    return {};
  }

  async #signal(call: Call, { process = {}, signal: name = '' }: RunInput): Promise<void> {
    const signal = signals[name];
    if (signal === undefined) throw new EnvdError('unimplemented', `The signal ${name} is not sent here.`);
    const { caller, sandboxId } = call;
    const run = await this.#runs.get(call, process);
    const body = { signal, target: 'tree' } as const;
    if (run.kind === 'process') await this.#control.processes.signal(caller, { sandboxId, process: run.id }, {}, body);
    else await this.#control.terminals.signal(caller, { sandboxId, terminal: run.id }, {}, body);
  }

  async #close(call: Call, selector: Selector = {}): Promise<void> {
    const { caller, sandboxId } = call;
    const run = await this.#runs.get(call, selector);
    if (run.kind === 'terminal') throw new EnvdError('unknown', 'The input of a terminal is not closed; send Ctrl-D.');
    try {
      await this.#control.processes.writeStdin(caller, { sandboxId, process: run.id }, {}, { close: true });
    } catch (error) {
      if (!isPlatformError(error, 'stdin_closed')) throw error;
    }
  }
}

interface Common {
  readonly command: string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly user: string;
  readonly timeoutMs?: number;
}

function timeLimit({ timeoutMs }: Call): { readonly timeoutMs?: number } {
  if (timeoutMs === undefined) return {};
  if (timeoutMs <= execLimits.timeoutMs) return { timeoutMs: Math.max(1, timeoutMs) };
  throw new EnvdError('invalid_argument', `A process has at most ${execLimits.timeoutMs} ms, or no limit at all.`);
}

function nameOf(tag: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/.test(tag)) return tag;
  throw new EnvdError('invalid_argument', 'A tag is 1 to 63 of A-Z, a-z, 0-9, ".", "_" and "-" here.');
}

function sizeOf(size: Size | undefined): { readonly columns: number; readonly rows: number } {
  const { cols = 0, rows = 0 } = size ?? {};
  assert(Number.isInteger(cols) && Number.isInteger(rows));
  if (cols > terminalLimits.columns || rows > terminalLimits.rows) {
    throw new EnvdError('invalid_argument', `A terminal has at most ${terminalLimits.columns} columns and rows.`);
  }
  return { columns: cols || 80, rows: rows || 24 };
}
