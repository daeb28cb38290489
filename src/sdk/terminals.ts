/** Terminals of one sandbox: ptys that go on by themselves, found again by id, shared by as many clients as come. */
import {
  type BodyInputOf,
  type PlatformError,
  routes,
  type TerminalSize,
  type TerminalView,
} from '../protocol/index.ts';
import type { CallOptions } from './connection.ts';
import { definedOf } from './defined-of.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import { OutputQueue } from './output-queue.ts';
import type { SandboxBinding } from './processes.ts';
import { TerminalLine } from './terminal-line.ts';

type OpenBody = BodyInputOf<(typeof routes)['openTerminal']>;
export type TerminalExit = NonNullable<TerminalView['exit']>;
type Look = { readonly signal?: AbortSignal };

export interface AttachOptions {
  /** Behind what is known already. Without it: the newest output that is kept, at most `replayBytes` of it. */
  readonly cursor?: string;
  readonly replayBytes?: number;
}

/** `id`: a handle of your own, or the id of a terminal that is there; without one it is a new terminal. */
export type OpenTerminalOptions = OpenBody & AttachOptions & CallOptions;

/** So much may wait for the reader; then the connection is let go until it has caught up. */
const unreadBytesMax = 4 * 1024 * 1024;

export class Terminals {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** The terminal of this id, made if there is none, and attached. However many ask at once, there is one. */
  async open(options: OpenTerminalOptions = {}): Promise<Terminal> {
    const { cursor, replayBytes, leaseToken, generation, expectedVersion, signal, ...rest } = options;
    const { idempotencyKey = newIdempotencyKey(), ...body } = rest;
    const { connection, sandboxId } = this.#binding;
    const call = definedOf({ idempotencyKey, leaseToken, generation, expectedVersion, signal });
    const view = await connection.call(routes.openTerminal, {
      params: { sandboxId },
      ...this.#binding.bound(call),
      body,
    });
    return await Terminal.attach(this.#binding, view, definedOf({ cursor, replayBytes }));
  }

  /** One that is there, by id or by the handle it was opened with. */
  async attach(terminal: string, options: AttachOptions & Look = {}): Promise<Terminal> {
    const { signal, ...from } = options;
    return await Terminal.attach(this.#binding, await this.get(terminal, signal && { signal }), from);
  }

  /** What it is, without attaching to it. */
  get(terminal: string, options: Look = {}): Promise<TerminalView> {
    const { connection, sandboxId } = this.#binding;
    return connection.call(routes.getTerminal, { params: { sandboxId, terminal }, ...options });
  }

  /** What runs first, and the newest first. */
  async list(options: Look = {}): Promise<readonly TerminalView[]> {
    const { connection, sandboxId } = this.#binding;
    return (await connection.call(routes.listTerminals, { params: { sandboxId }, ...options })).items;
  }

  /** Ends everything in it and forgets it. */
  async destroy(terminal: string, options: CallOptions & { readonly graceMs?: number } = {}): Promise<void> {
    const { graceMs, ...call } = options;
    const { connection, sandboxId } = this.#binding;
    await connection.call(routes.destroyTerminal, {
      params: { sandboxId, terminal },
      query: definedOf({ graceMs }),
      ...this.#binding.bound(call),
    });
  }
}

/**
 * One client of one terminal. Read it with `for await` or with `onData`, one of the two; a connection that breaks comes back by itself, without
 * gap or duplicate. Leaving (`close`, `await using`) ends nothing but this client.
 */
export class Terminal implements AsyncDisposable {
  readonly #binding: SandboxBinding;
  readonly #line: TerminalLine;
  readonly #queue = new OutputQueue();
  readonly #exited = Promise.withResolvers<TerminalExit | undefined>();
  readonly #listeners = new Set<(bytes: Uint8Array) => void>();
  readonly #droppedListeners = new Set<(bytes: number) => void>();
  readonly #refusalListeners = new Set<(error: PlatformError) => void>();
  #view: TerminalView;
  #cursor: string | undefined;
  #isPaused = false;

  private constructor(binding: SandboxBinding, view: TerminalView, from: AttachOptions) {
    this.#binding = binding;
    this.#view = view;
    this.#cursor = from.cursor;
    this.#exited.promise.catch(() => {}); // Whoever waits for it hears of it.
    const { leaseToken } = binding.bound({});
    const start = { sandboxId: binding.sandboxId, terminal: view.id, leaseToken, ...from };
    this.#line = new TerminalLine(binding.connection, start, {
      onData: (bytes) => this.#take(bytes),
      onDropped: (bytes) => {
        for (const listener of this.#droppedListeners) listener(bytes);
      },
      onRefusal: (error) => {
        for (const listener of this.#refusalListeners) listener(error);
      },
      onOver: (exit, error) => this.#end(exit, error),
    });
  }

  static async attach(binding: SandboxBinding, view: TerminalView, from: AttachOptions): Promise<Terminal> {
    const terminal = new Terminal(binding, view, from);
    const { view: attached, cursor } = await terminal.#line.attached;
    terminal.#view = attached;
    terminal.#cursor ??= cursor;
    return terminal;
  }

  get id(): string {
    return this.#view.id;
  }
  get name(): string | null {
    return this.#view.name;
  }
  /** What the server last said about it. */
  get view(): TerminalView {
    return this.#view;
  }
  /** Behind the last byte that was handed out: `attach` with it goes on there. */
  get cursor(): string | undefined {
    return this.#cursor;
  }
  /** How its program ended; `undefined` when this client left first. Rejected when the connection is lost for good. */
  get exited(): Promise<TerminalExit | undefined> {
    return this.#exited.promise;
  }

  /** Hears everything that waits, and everything that comes. The answer takes it back. */
  onData(listener: (bytes: Uint8Array) => void): () => void {
    this.#listeners.add(listener);
    for (let piece = this.#queue.take(); piece !== undefined; piece = this.#queue.take()) {
      this.#cursor = piece.cursor;
      listener(piece.bytes);
    }
    this.#caughtUp();
    return () => this.#listeners.delete(listener);
  }

  /** About so many bytes of output are lost to this client: it was too slow, or away too long. */
  onDropped(listener: (bytes: number) => void): () => void {
    this.#droppedListeners.add(listener);
    return () => this.#droppedListeners.delete(listener);
  }

  /** What was typed or asked for here was refused, such as while somebody else holds the lease. */
  onRefusal(listener: (error: PlatformError) => void): () => void {
    this.#refusalListeners.add(listener);
    return () => this.#refusalListeners.delete(listener);
  }

  /** To the end of its program, or of this client. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array, void, undefined> {
    for (;;) {
      const piece = await this.#queue.next();
      if (piece === undefined) return;
      this.#cursor = piece.cursor;
      yield piece.bytes;
      this.#caughtUp();
    }
  }

  /** Types it. */
  write(data: string | Uint8Array): void {
    this.#line.send(typeof data === 'string' ? new TextEncoder().encode(data) : new Uint8Array(data));
  }

  /** For all clients; the last size that was set counts. */
  resize({ columns, rows }: TerminalSize): void {
    this.#line.send({ type: 'resize', columns, rows });
  }

  /** As Ctrl-C: what runs in front hears INT; the shell goes on. */
  interrupt(): void {
    this.#line.send({ type: 'interrupt' });
  }

  /** To the shell itself (`leader`) or to everything in the terminal (`tree`). */
  signal(signal: string | number, target: 'leader' | 'tree' = 'tree'): void {
    this.#line.send({ type: 'signal', signal, target });
  }

  /** Leaves; the terminal goes on. */
  close(): void {
    this.#line.close();
  }

  /** Ends everything in it and forgets it. */
  async destroy(options: CallOptions & { readonly graceMs?: number } = {}): Promise<void> {
    await new Terminals(this.#binding).destroy(this.id, options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #take(bytes: Uint8Array): void {
    const { cursor } = this.#line;
    if (this.#listeners.size > 0) {
      this.#cursor = cursor;
      for (const listener of this.#listeners) listener(bytes);
      return;
    }
    this.#queue.push({ bytes, cursor });
    if (this.#queue.size <= unreadBytesMax) return;
    this.#isPaused = true;
    this.#line.pause();
  }

  #caughtUp(): void {
    if (!this.#isPaused || this.#queue.size > 0) return;
    this.#isPaused = false;
    this.#line.resume();
  }

  #end(exit: TerminalExit | undefined, error: unknown): void {
    if (exit !== undefined) this.#view = { ...this.#view, exit, running: false };
    this.#queue.end(error === undefined ? undefined : { error });
    if (error === undefined) this.#exited.resolve(exit);
    else this.#exited.reject(error);
  }
}
