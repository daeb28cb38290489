/** Processes of one sandbox: commands that go on by themselves, found again by id, followed from any place. */
import {
  type BodyInputOf,
  isPlatformError,
  PlatformError,
  type ProcessView,
  processLimits,
  type ResultOf,
  routes,
} from '../protocol/index.ts';
import { encodeBase64 } from './base64.ts';
import type { CallOptions, Connection } from './connection.ts';
import { definedOf } from './defined-of.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import { followOutput, type OpenedOutput, type OutputFrom, type OutputItem, startFollowed } from './process-output.ts';
import {
  findInOutput,
  type LogMatch,
  pollPort,
  type WaitForLogOptions,
  type WaitForPortOptions,
} from './process-waits.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
type StartBody = BodyInputOf<Routes['startProcess']>;
export type StartProcessOptions = Omit<StartBody, 'command'> &
  CallOptions & {
    /**
     * Its output comes with the answer, which saves a request until the first byte: the first `output()`, or whatever else reads it, takes that
     * stream. Whoever asks for it reads it, because a reader that takes nothing holds the process back, for a minute at most.
     */
    readonly follow?: boolean;
  };
/** `signal` here is the one that is sent. */
export interface KillOptions extends Omit<CallOptions, 'signal'> {
  readonly signal?: string | number;
  /** Then KILL to the tree, if something of it is left. */
  readonly graceMs?: number;
}
export interface SignalOptions extends CallOptions {
  readonly target?: 'leader' | 'tree';
  readonly graceMs?: number;
}
export interface WaitOptions extends Look {
  /** `exit`: of the leader. `tree`: of everything it started. */
  readonly for?: 'exit' | 'tree';
  readonly timeoutMs?: number;
}

/** How a sandbox's handle sends: bound to its life and its lease. */
export interface SandboxBinding {
  readonly connection: Connection;
  readonly sandboxId: string;
  bound(options: CallOptions): CallOptions;
}

export class Processes {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** Answers as soon as it runs. It goes on whoever disconnects. */
  async start(command: string | readonly string[], options: StartProcessOptions = {}): Promise<Process> {
    const { idempotencyKey = newIdempotencyKey(), leaseToken, generation, expectedVersion, signal, ...rest } = options;
    const { follow = false, ...body } = rest;
    const { connection, sandboxId } = this.#binding;
    const call = definedOf({ idempotencyKey, leaseToken, generation, expectedVersion, signal });
    const request = {
      params: { sandboxId },
      ...this.#binding.bound(call),
      body: { ...body, command: typeof command === 'string' ? command : [...command] },
    };
    if (!follow) return new Process(this.#binding, await connection.call(routes.startProcess, request));
    const { view, opened } = await startFollowed(connection, request);
    return new Process(this.#binding, view, opened);
  }

  /** By id or name. */
  async get(process: string, options: Look = {}): Promise<Process> {
    const { connection, sandboxId } = this.#binding;
    const call = { params: { sandboxId, process }, ...this.#binding.bound(options) };
    const view = await connection.call(routes.getProcess, call);
    return new Process(this.#binding, view);
  }

  /** One page: what runs first, and the newest first. */
  async list(
    options: Look & { readonly sessionId?: string; readonly cursor?: string; readonly limit?: number } = {},
  ): Promise<{ readonly items: readonly Process[]; readonly nextCursor: string | null }> {
    const { signal, ...query } = options;
    const { connection, sandboxId } = this.#binding;
    const page = await connection.call(routes.listProcesses, {
      params: { sandboxId },
      query,
      ...this.#binding.bound(definedOf({ signal })),
    });
    return { items: page.items.map((view) => new Process(this.#binding, view)), nextCursor: page.nextCursor };
  }

  /** Ends every process that runs (KILL unless told), and tells how many these were. */
  async killAll(options: KillOptions = {}): Promise<number> {
    const { signal, graceMs, ...call } = options;
    const { connection, sandboxId } = this.#binding;
    const answer = await connection.call(routes.killProcesses, {
      params: { sandboxId },
      ...this.#binding.bound(call),
      body: definedOf({ signal, graceMs }),
    });
    return answer.count;
  }
}

/** A handle belongs to one life of its sandbox: whatever it is asked in a later one is refused with `stale_generation`. */
export class Process {
  readonly #binding: SandboxBinding;
  #view: ProcessView;
  /** Its output from the first byte on, until somebody takes it. */
  #opened: OpenedOutput | undefined;

  constructor(binding: SandboxBinding, view: ProcessView, opened?: OpenedOutput) {
    this.#binding = binding;
    this.#view = view;
    this.#opened = opened;
  }

  get id(): string {
    return this.#view.id;
  }
  get name(): string | null {
    return this.#view.name;
  }
  get pid(): number {
    return this.#view.pid;
  }
  /** What the server last said about it. */
  get view(): ProcessView {
    return this.#view;
  }

  async refresh(options: Look = {}): Promise<this> {
    this.#view = await this.#connection.call(routes.getProcess, { params: this.#params, ...this.#bound(options) });
    return this;
  }

  /** Replay, then live, until its tree has ended; takes up again by itself where a connection broke. */
  output(from: OutputFrom = {}): AsyncGenerator<OutputItem, void, undefined> {
    const opened = from.cursor === undefined ? this.#opened : undefined;
    if (opened !== undefined) this.#opened = undefined;
    return followOutput(this.#connection, { params: this.#params, ...this.#bound({}) }, from, opened);
  }

  /** One page of what is there now. */
  readOutput(
    options: Look & { readonly cursor?: string; readonly encoding?: 'utf8' | 'base64' } = {},
  ): Promise<ResultOf<Routes['readProcessOutput']>> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.readProcessOutput, {
      params: this.#params,
      query,
      ...this.#bound(definedOf({ signal })),
    });
  }

  /** What it wrote to stdout, to the end of its tree. */
  stdout(options: Look = {}): Promise<string> {
    return this.#text('stdout', options);
  }

  stderr(options: Look = {}): Promise<string> {
    return this.#text('stderr', options);
  }

  /** Rejected with `wait_timeout` when the time is over. The process goes on, also when the signal aborts. */
  async wait(options: WaitOptions = {}): Promise<ProcessView> {
    const { signal, timeoutMs } = options;
    const wanted = options.for ?? 'exit';
    const { clock } = this.#connection;
    const untilMs = timeoutMs === undefined ? Number.POSITIVE_INFINITY : clock.nowMs() + timeoutMs;
    for (;;) {
      const leftMs = Math.max(0, Math.min(processLimits.waitMs, Math.ceil(untilMs - clock.nowMs())));
      const query = { for: wanted, timeoutMs: leftMs };
      this.#view = await this.#connection.call(routes.waitProcess, {
        params: this.#params,
        query,
        timeoutMs: null,
        ...this.#bound(definedOf({ signal })),
      });
      if (wanted === 'exit' ? this.#view.exit !== null : !this.#view.running) return this.#view;
      if (clock.nowMs() >= untilMs) throw new PlatformError('wait_timeout', 'The process had not ended in time.');
    }
  }

  /** The first match in its output, old or new. */
  waitForLog(pattern: string | RegExp, options: WaitForLogOptions = {}): Promise<LogMatch> {
    return this.#within(options, 'It did not say so in time.', (signal) =>
      findInOutput(this.output({ signal }), pattern, options),
    );
  }

  /** Until something answers on this port inside the sandbox. */
  waitForPort(port: number, options: WaitForPortOptions = {}): Promise<void> {
    const { sandboxId } = this.#binding;
    const query = {
      ...(options.path !== undefined && { path: options.path }),
      ...(options.family !== undefined && { family: options.family === 4 ? ('4' as const) : ('6' as const) }),
    };
    return this.#within(options, 'The port was not ready in time.', (signal) =>
      pollPort(
        (probing) => {
          const call = { params: { sandboxId, port }, query, ...this.#bound({ signal: probing }) };
          return this.#connection.call(routes.probePort, call);
        },
        {
          ...options,
          clock: this.#connection.clock,
          signal,
          isOver: async (asking) => !(await this.refresh({ signal: asking })).view.running,
        },
      ),
    );
  }

  /** `offset`: how many bytes were written before; a repeat with it is exact. Answers with the next one. */
  write(data: string | Uint8Array, options: CallOptions & { readonly offset?: number } = {}): Promise<number> {
    return this.#writeStdin({ stdin: typeof data === 'string' ? data : { base64: encodeBase64(data) } }, options);
  }

  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.#writeStdin({ close: true }, options);
  }

  /** Sends it to the whole tree unless told. Answers when it is sent; `wait` waits for what comes of it. */
  async signal(signal: string | number, options: SignalOptions = {}): Promise<this> {
    const { target, graceMs, ...call } = options;
    const body = { signal, ...definedOf({ target, graceMs }) };
    this.#view = await this.#connection.call(routes.signalProcess, {
      params: this.#params,
      ...this.#bound(call),
      body,
    });
    return this;
  }

  /** TERM to the whole tree; with `graceMs` KILL follows. */
  kill(options: KillOptions = {}): Promise<this> {
    const { signal = 'TERM', ...rest } = options;
    return this.signal(signal, rest);
  }

  /** Forgets it with its output; it must have ended. */
  async remove(options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.removeProcess, { params: this.#params, ...this.#bound(options) });
  }

  async #writeStdin(
    body: Omit<BodyInputOf<Routes['writeProcessStdin']>, 'offset'>,
    options: CallOptions & { readonly offset?: number },
  ): Promise<number> {
    const { offset, ...call } = options;
    const answer = await this.#connection.call(routes.writeProcessStdin, {
      params: this.#params,
      ...this.#bound(call),
      body: { ...body, ...(offset !== undefined && { offset }) },
    });
    return answer.offset;
  }

  async #text(stream: 'stdout' | 'stderr', options: Look): Promise<string> {
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    let text = '';
    for await (const item of this.output(options)) {
      if (item.kind === 'output' && item.stream === stream) text += decoder.decode(item.bytes, { stream: true });
    }
    return text + decoder.decode();
  }

  /** The caller's signal gives its own reason; our timer gives `wait_timeout`. Either way the reading stops. */
  async #within<Result>(
    options: Look & { readonly timeoutMs?: number },
    message: string,
    work: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    const timer = options.timeoutMs === undefined ? undefined : AbortSignal.timeout(options.timeoutMs);
    const over = new AbortController();
    const signals = [options.signal, timer, over.signal].filter((signal) => signal !== undefined);
    try {
      return await work(AbortSignal.any(signals));
    } catch (error) {
      options.signal?.throwIfAborted();
      if (timer?.aborted && !isPlatformError(error)) throw new PlatformError('wait_timeout', message);
      throw error;
    } finally {
      over.abort();
    }
  }

  /** The handle's own life, and not the one that the sandbox's handle has gone on to. */
  #bound(options: CallOptions): CallOptions {
    return this.#binding.bound({ generation: this.#view.generation, ...options });
  }

  get #connection(): Connection {
    return this.#binding.connection;
  }

  get #params() {
    return { sandboxId: this.#binding.sandboxId, process: this.#view.id as string };
  }
}
