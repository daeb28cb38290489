/**
 * `atoll exec -- …` in a checkout: the cycle around one process. Its bytes and exit code come through; what we say is on stderr, and with
 * `--json` stdout is one object that holds its output too.
 *
 * The first signal that we hear goes to the process, whose changes are brought back as always; the second ends it at once and brings nothing.
 */
import { type CycleResult, type Leased, runCycle } from '../checkout/index.ts';
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { OutputItem, Process } from '../sdk/index.ts';
import { type CheckoutOptions, cycleOptions, type OpenCheckout, openCheckoutHere, say } from './checkout-call.ts';
import type { CommandCall } from './command-call.ts';
import { exitCodes } from './exit-codes.ts';
import { pathFilters, printStatus } from './sync-printing.ts';
import { visitTerminal } from './terminal-visit.ts';

export interface CheckoutExecOptions extends CheckoutOptions {
  readonly reset?: boolean;
  readonly pull?: boolean;
  readonly pullOnly?: boolean;
  readonly dryRun?: boolean;
  readonly path?: readonly string[];
  readonly pullOnTimeout?: boolean;
  readonly detach?: boolean;
  readonly attach?: string;
  readonly tty?: boolean;
  readonly stdin?: boolean;
  readonly timeout?: number;
  readonly cwd?: string;
  readonly env?: Record<string, string>;
  readonly user?: string;
}

type Exit = Extract<OutputItem, { kind: 'exited' }>['exit'];

interface Ran {
  readonly processId: string | null;
  readonly exitCode: number;
  readonly exit: Exit | null;
  readonly isDetached: boolean;
  /** Whoever asks twice does not want to wait. */
  readonly isCut: boolean;
  readonly stdout: Uint8Array;
  readonly stderr: Uint8Array;
  readonly truncated: boolean;
}

const timedOutCode = 124;
const signalNumbers = { INT: 2, TERM: 15, HUP: 1 } as const;
const graceMs = 5_000;
/** Of what a command wrote before it ended, while something that it started goes on. */
const lateOutputMs = 500;
/** Of each stream, with --json. */
const collectedMaxBytes = 16 * 1024 * 1024;
const reasonMaxLength = 200;

export async function execInCheckout(
  call: CommandCall<CheckoutExecOptions>,
  command: string | readonly string[],
): Promise<void> {
  const { options } = call;
  const filters = pathFilters(options.path);
  if (options.dryRun) return await tellOnly(call, filters);
  const givenUp = new AbortController();
  const runner = new Runner(call, command, givenUp);
  const stopListening = call.io.onSignals((signal) => runner.hear(signal));
  try {
    const checkout = await openCheckoutHere(call, { signal: givenUp.signal });
    // Only a push makes sense with a new sandbox.
    if (options.pullOnly) await checkout.resolver.get();
    const sync = options.sync === false ? undefined : await checkout.sync();
    const text = typeof command === 'string' ? command : command.join(' ');
    const reason = (options.attach === undefined ? text : `attach ${options.attach}`).slice(0, reasonMaxLength);
    const cycle = cycleOptions(call, checkout, { reason, sync, signal: givenUp.signal });
    const result = await runCycle(cycle, {
      run: (leased) => runner.run(leased, checkout),
      mayPull: (ran) => mayPull(options, ran),
      isReset: options.reset ?? false,
      // What a command that still runs has changed is not to be overwritten.
      isPushed: options.attach === undefined && !options.pullOnly,
      isSetUp: options.attach === undefined && !options.pullOnly,
      ...filters,
    });
    await report(call, result);
  } catch (error) {
    if (runner.heard !== undefined && givenUp.signal.aborted && !isPlatformError(error)) {
      call.exitCode = 128 + signalNumbers[runner.heard];
      if (call.isJson) await call.print({ error: { code: 'interrupted', message: 'Interrupted.' } }, () => '');
      return;
    }
    throw error;
  } finally {
    stopListening();
  }
}

/** What would be sent and brought back; nothing is run, made or changed, and no lease is needed. */
async function tellOnly(
  call: CommandCall<CheckoutExecOptions>,
  filters: { readonly paths?: readonly string[] },
): Promise<void> {
  const checkout = await openCheckoutHere(call);
  const { sandbox } = await checkout.resolver.get();
  await printStatus(call, sandbox.id, await (await checkout.sync()).status(sandbox, filters));
}

function mayPull(options: CheckoutExecOptions, ran: Ran): boolean {
  if (options.pull === false || ran.isDetached || ran.isCut) return false;
  return !(ran.exit?.timedOut && options.pullOnTimeout === false);
}

class Runner {
  readonly #call: CommandCall<CheckoutExecOptions>;
  readonly #command: string | readonly string[];
  readonly #givenUp: AbortController;
  #process: Process | undefined;
  #isCut = false;
  heard: keyof typeof signalNumbers | undefined;

  constructor(call: CommandCall<CheckoutExecOptions>, command: string | readonly string[], givenUp: AbortController) {
    this.#call = call;
    this.#command = command;
    this.#givenUp = givenUp;
  }

  hear(signal: keyof typeof signalNumbers): void {
    const isSecond = this.heard !== undefined;
    this.heard ??= signal;
    const process = this.#process;
    // Nothing runs yet, or no longer: there is nothing to wait for.
    if (process === undefined) {
      this.#givenUp.abort();
      return;
    }
    this.#isCut ||= isSecond;
    void process.kill({ signal: isSecond ? 'KILL' : signal }).catch(() => {});
  }

  async run(leased: Leased, checkout: OpenCheckout): Promise<Ran> {
    const { options } = this.#call;
    if (options.tty) return await this.#inTerminal(leased, checkout);
    const process =
      options.attach === undefined
        ? await this.#start(leased, checkout)
        : await leased.sandbox.processes.get(options.attach);
    if (options.detach) return { ...nothing, processId: process.id, exitCode: exitCodes.done, isDetached: true };
    this.#process = process;
    // Heard while it was being started.
    if (this.heard !== undefined) void process.kill({ signal: this.heard }).catch(() => {});
    const stopFeeding = options.stdin ? this.#feed(process) : () => {};
    try {
      return await this.#follow(process, leased);
    } catch (error) {
      throw leftRunning(error, process);
    } finally {
      stopFeeding();
      this.#process = undefined;
    }
  }

  async #start(leased: Leased, checkout: OpenCheckout): Promise<Process> {
    const { timeout, user, stdin } = this.#call.options;
    return await leased.sandbox.processes.start(this.#command, {
      ...this.#place(checkout),
      graceMs,
      stdin: stdin ? 'open' : 'closed',
      ...(timeout !== undefined && { timeoutMs: timeout }),
      ...(user !== undefined && { user }),
      signal: leased.signal,
    });
  }

  #place({ definition }: OpenCheckout) {
    const { cwd, env } = this.#call.options;
    return { cwd: cwd ?? definition.directory, env: { ...definition.env, ...env } };
  }

  async #follow(process: Process, leased: Leased): Promise<Ran> {
    const { io, isJson } = this.#call;
    const kept = { stdout: new Collected(), stderr: new Collected() };
    let exit: Exit | null = null;
    const enough = new AbortController();
    const signal = AbortSignal.any([leased.signal, enough.signal]);
    for await (const item of untilAborted(process.output({ signal }), enough.signal)) {
      if (item.kind === 'exited') {
        exit = item.exit;
        // What it left running goes on, and is no reason to keep the lease; only what is on its way is waited for.
        setTimeout(() => enough.abort(), lateOutputMs).unref();
      }
      if (item.kind === 'dropped') say(this.#call, `${item.bytes} bytes of output are no longer kept.`);
      if (item.kind !== 'output') continue;
      if (isJson) kept[item.stream].add(item.bytes);
      else await io[item.stream].write(item.bytes);
    }
    return {
      processId: process.id,
      exitCode: this.#exitCode(exit),
      exit,
      isDetached: false,
      isCut: this.#isCut,
      stdout: kept.stdout.bytes,
      stderr: kept.stderr.bytes,
      truncated: kept.stdout.isTruncated || kept.stderr.isTruncated,
    };
  }

  #exitCode(exit: Exit | null): number {
    if (this.heard !== undefined) return 128 + signalNumbers[this.heard];
    if (exit?.timedOut) return timedOutCode;
    return exit?.exitCode ?? exitCodes.outcomeUnknown;
  }

  /** Our standard input, in order, as it comes. */
  #feed(process: Process): () => void {
    let line = Promise.resolve();
    const then = (work: () => Promise<unknown>) => {
      // A process that does not read, or has ended, takes no more; how it ended is told by its output.
      line = line.then(work).then(
        () => {},
        () => {},
      );
    };
    return this.#call.io.terminal.onInput(
      (bytes) => then(() => process.write(bytes)),
      () => then(() => process.closeStdin()),
    );
  }

  async #inTerminal(leased: Leased, checkout: OpenCheckout): Promise<Ran> {
    const { terminal: local, env: ours } = this.#call.io;
    const { env, ...place } = this.#place(checkout);
    const { timeout, user } = this.#call.options;
    const command = typeof this.#command === 'string' ? ['bash', '-c', this.#command] : [...this.#command];
    const terminal = await leased.sandbox.terminals.open({
      ...local.size(),
      ...place,
      env: { ...(ours['TERM'] !== undefined && { TERM: ours['TERM'] }), ...env },
      command,
      ...(timeout !== undefined && { timeoutMs: timeout }),
      ...(user !== undefined && { user }),
    });
    const ended = await visitTerminal(this.#call, terminal);
    const exit = (await terminal.exited) ?? null;
    const exitCode = exit?.timedOut ? timedOutCode : ended;
    const isDetached = exitCode === exitCodes.done && terminal.view.running;
    if (isDetached) say(this.#call, `Left ${terminal.id} running; "atoll sh --id ${terminal.id}" shows it again.`);
    return { ...nothing, exitCode, exit, isDetached };
  }
}

const nothing = {
  processId: null,
  exit: null,
  isDetached: false,
  isCut: false,
  stdout: new Uint8Array(),
  stderr: new Uint8Array(),
  truncated: false,
} as const;

async function report(call: CommandCall<CheckoutExecOptions>, cycle: CycleResult<Ran>): Promise<void> {
  const { result, pull, push, pullError } = cycle;
  const hasConflicts = (pull?.conflicts.length ?? 0) > 0;
  call.exitCode = result.exitCode;
  // The command's own failure says more than what happened afterwards.
  if (result.exitCode === exitCodes.done && (pullError !== null || hasConflicts)) call.exitCode = exitCodes.conflict;
  for (const warning of [...(push?.warnings ?? []), ...(pull?.warnings ?? [])]) say(call, warning);
  if (pullError !== null) say(call, `Changes could not be brought back: ${pullError.message}`);
  if (pull !== null && hasConflicts) {
    const paths = pull.conflicts.map(({ path }) => path).join(', ');
    say(call, `Not brought back, because both sides changed them: ${paths}. Nothing here was changed.`);
    const where = [pull.folder, pull.ref].filter((place) => place !== null).join(' and on ');
    if (where !== '') say(call, `The sandbox's side is in ${where}; README.txt there tells how to go on.`);
  }
  if (call.options.verbose) {
    const { push: pushMs, run, pull: pullMs } = cycle.timingsMs;
    say(call, `push ${pushMs} ms, run ${run} ms, pull ${pullMs} ms`);
  }
  if (call.isJson) await call.print(jsonOf(cycle), () => '');
  else if (result.isDetached && result.processId !== null) await call.print(null, () => `${result.processId}\n`);
}

function jsonOf({ result, pullError, ...rest }: CycleResult<Ran>): unknown {
  const { stdout, stderr, exit, isDetached, isCut: _, ...ran } = result;
  const texts = [stdout, stderr].map((bytes) => decoded(bytes));
  const isText = texts.every((text) => text !== undefined);
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64');
  return {
    ...rest,
    ...ran,
    detached: isDetached,
    timedOut: exit?.timedOut ?? false,
    signal: exit?.signal ?? null,
    stdout: isText ? texts[0] : base64(stdout),
    stderr: isText ? texts[1] : base64(stderr),
    encoding: isText ? 'utf8' : 'base64',
    pullError: pullError && { code: pullError.code, message: pullError.message, details: pullError.details },
  };
}

function decoded(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

async function* untilAborted<Item>(items: AsyncIterable<Item>, enough: AbortSignal): AsyncGenerator<Item> {
  try {
    yield* items;
  } catch (error) {
    if (!enough.aborted) throw error;
  }
}

/** Bytes up to a limit. */
class Collected {
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  isTruncated = false;

  add(bytes: Uint8Array): void {
    const room = collectedMaxBytes - this.#size;
    const kept = bytes.subarray(0, room);
    this.isTruncated ||= kept.byteLength < bytes.byteLength;
    this.#size += kept.byteLength;
    if (kept.byteLength > 0) this.#chunks.push(kept);
  }

  get bytes(): Uint8Array {
    return Buffer.concat(this.#chunks);
  }
}

/** A connection that is lost says nothing about the command. */
function leftRunning(error: unknown, process: Process): unknown {
  if (!isPlatformError(error) || error.code === 'lease_lost') return error;
  const message = `${error.message} The command goes on; see it with: atoll exec --attach ${process.id}`;
  return new PlatformError(error.code, message, { details: { ...error.details, processId: process.id }, cause: error });
}
