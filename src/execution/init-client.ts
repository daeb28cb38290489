/**
 * The node's hold on one life of one sandbox: a control connection that is opened again when it is lost, and one more connection
 * a run.
 *
 * Invariants:
 *  - Every connection is to the life it was opened for: another generation counts as nobody there.
 *  - `gone` resolves once, when init cannot be reached any more and the node did not close the client itself.
 */
import type { Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { PlatformError } from '../protocol/index.ts';
import { ControlConnection } from './control-connection.ts';
import { FileWorkers } from './files/worker-pool.ts';
import { InitAddress } from './init-address.ts';
import { RunLines } from './run-lines.ts';

/** Pauses before each attempt to find init again. A dead init refuses at once; a busy one is found within this. */
const reconnectPausesMs: readonly number[] = [0, 20, 100, 500];

export class InitClient {
  /** For the files of this life; ends with it. */
  readonly files: FileWorkers;
  /** For commands, one after another; a run with a journal is the last on its connection. */
  readonly runs: RunLines;
  readonly #address: InitAddress;
  readonly #generation: number;
  readonly #gone = Promise.withResolvers<void>();
  #control: Promise<ControlConnection>;
  #closed = false;

  private constructor(address: InitAddress, generation: number, control: ControlConnection) {
    this.#address = address;
    this.#generation = generation;
    this.files = new FileWorkers({ connect: (options) => address.connect(options), generation });
    this.runs = new RunLines(() => address.connect());
    this.#control = Promise.resolve(control);
    this.#follow(control);
  }

  static async connect(options: { readonly directory: string; readonly generation: number }): Promise<InitClient> {
    const address = await InitAddress.open(options.directory);
    try {
      const control = await ControlConnection.open(address.connect(), options);
      return new InitClient(address, options.generation, control);
    } catch (error) {
      await address.close();
      throw error;
    }
  }

  /** Resolves when init is not there any more. */
  get gone(): Promise<void> {
    return this.#gone.promise;
  }

  /**
   * Asks on the control connection. A lost connection is tried once more on a new one, so `ask` must be a question or an order that
   * may be repeated.
   */
  async control<Result>(ask: (connection: ControlConnection) => Promise<Result>): Promise<Result> {
    const first = this.#control;
    try {
      return await ask(await first);
    } catch (error) {
      const lost = error instanceof PlatformError && ['outcome_unknown', 'sandbox_unavailable'].includes(error.code);
      if (!lost || this.#closed || this.#control === first) throw error;
      return await ask(await this.#control);
    }
  }

  /** One more control connection, for what waits long or is told unasked; the caller ends it. */
  async openControl(): Promise<ControlConnection> {
    try {
      return await ControlConnection.open(this.#address.connect(), { generation: this.#generation });
    } catch (error) {
      throw unavailable(error);
    }
  }

  /** A new connection for one probe of a port; the caller ends it. */
  openRun(): Socket {
    return this.#address.connect();
  }

  /** A new connection for one relay, each direction of which ends on its own; the caller ends it. */
  openRelay(): Socket {
    return this.#address.connect({ allowHalfOpen: true });
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.files.close();
    this.runs.close();
    const control = await this.#control.catch(() => undefined);
    control?.close();
    await this.#address.close();
  }

  #follow(control: ControlConnection): void {
    void control.closed.then(() => {
      if (this.#closed) return;
      this.#control = this.#reconnect();
      this.#control.then(
        (next) => this.#follow(next),
        () => this.#gone.resolve(),
      );
    });
  }

  async #reconnect(): Promise<ControlConnection> {
    let last: unknown;
    for (const pauseMs of reconnectPausesMs) {
      await delay(pauseMs);
      if (this.#closed) break;
      try {
        return await ControlConnection.open(this.#address.connect(), { generation: this.#generation });
      } catch (error) {
        last = error;
        if (isNobodyThere(error)) break;
      }
    }
    throw unavailable(last);
  }
}

function unavailable(cause: unknown): PlatformError {
  return new PlatformError('sandbox_unavailable', 'The sandbox does not answer.', { cause });
}

function isNobodyThere(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code;
  return code === 'ECONNREFUSED' || code === 'ENOENT';
}
