/**
 * Measuring in a process of its own, so that neither the bench nor the server is slowed by whoever measures. A job's time is
 * taken inside the worker; the message that orders it is not part of it.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { join } from 'node:path';
import type { Scope } from './row.ts';

interface Answer {
  readonly id: number;
  readonly result?: unknown;
  readonly error?: string;
}

export class Worker {
  readonly #child: ChildProcess;
  readonly #waiting = new Map<number, PromiseWithResolvers<unknown>>();
  readonly #ended = Promise.withResolvers<void>();
  #next = 1;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.on('message', (answer: Answer) => {
      const waiter = this.#waiting.get(answer.id);
      this.#waiting.delete(answer.id);
      if (answer.error === undefined) waiter?.resolve(answer.result);
      else waiter?.reject(new Error(answer.error));
    });
    child.on('exit', () => {
      this.#refuseWaiting('A worker of the bench ended.');
      this.#ended.resolve();
    });
    // A message to a channel that closes meanwhile; its job is refused below, and `exit` still comes.
    child.on('error', (error) => this.#refuseWaiting(error.message));
  }

  /** `file` is in `workers/`. */
  static start(scope: Scope, file: string): Worker {
    const child = fork(join(import.meta.dirname, 'workers', file), [], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const worker = new Worker(child);
    scope.stack.defer(() => worker.#close());
    return worker;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async run<Result = number>(job: string, options: Readonly<Record<string, unknown>> = {}): Promise<Result> {
    const id = this.#next++;
    const waiter = Promise.withResolvers<unknown>();
    this.#waiting.set(id, waiter);
    this.#child.send({ id, job, options });
    return (await waiter.promise) as Result;
  }

  /** A worker that loses its channel removes what it made and ends. */
  async #close(): Promise<void> {
    if (this.#child.connected) this.#child.disconnect();
    await this.#ended.promise;
  }

  #refuseWaiting(why: string): void {
    for (const waiter of this.#waiting.values()) waiter.reject(new Error(why));
    this.#waiting.clear();
  }
}
