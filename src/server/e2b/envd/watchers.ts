/**
 * Watches whose events are fetched, for clients that cannot hold a stream. A watcher that nobody asks for any more is ended after a while, and one whose
 * events nobody fetches says that it lost them.
 */
import { randomUUID } from 'node:crypto';
import type { Timers } from '../../../base/index.ts';
import type { SandboxId } from '../../../protocol/index.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { EnvdError } from './envd-error.ts';
import type { Message } from './messages.ts';

const watchersMax = 64;
const eventsMax = 1_000;
const idleMs = 600_000;

interface Watcher {
  readonly sandboxId: SandboxId;
  readonly ending: AbortController;
  events: Message[];
  hasLost: boolean;
  failure: unknown;
  cancelIdle: () => void;
}

export class Watchers {
  readonly #timers: Timers;
  readonly #watchers = new Map<string, Watcher>();

  constructor(timers: Timers) {
    this.#timers = timers;
  }

  /** Answers when what happens is told. */
  async create(
    { sandboxId }: EnvdSandbox,
    open: (signal: AbortSignal) => AsyncGenerator<'armed' | Message, void>,
  ): Promise<string> {
    const here = [...this.#watchers.values()].filter((watcher) => watcher.sandboxId === sandboxId);
    if (here.length >= watchersMax)
      throw new EnvdError('resource_exhausted', `A sandbox has at most ${watchersMax} watchers.`);
    const ending = new AbortController();
    const watcher: Watcher = {
      sandboxId,
      ending,
      events: [],
      hasLost: false,
      failure: undefined,
      cancelIdle: () => {},
    };
    const id = randomUUID();
    // Counted before the first wait: many may come here at once.
    this.#watchers.set(id, watcher);
    const source = open(ending.signal);
    try {
      await source.next();
    } catch (error) {
      this.#end(id);
      throw error;
    }
    this.#touch(id, watcher);
    void this.#fill(watcher, source);
    return id;
  }

  /** What happened since it was asked for the last time. */
  take(sandbox: EnvdSandbox, id: string): readonly Message[] {
    const watcher = this.#get(sandbox, id);
    this.#touch(id, watcher);
    const { events, failure } = watcher;
    watcher.events = [];
    if (watcher.hasLost) {
      watcher.hasLost = false;
      throw new EnvdError('resource_exhausted', `More than ${eventsMax} events were not fetched; they are lost.`);
    }
    if (events.length === 0 && failure !== undefined) throw failure;
    return events;
  }

  remove(sandbox: EnvdSandbox, id: string): void {
    this.#get(sandbox, id);
    this.#end(id);
  }

  async #fill(watcher: Watcher, source: AsyncIterable<'armed' | Message>): Promise<void> {
    try {
      for await (const event of source) {
        if (event !== 'armed') watcher.events.push(event);
        if (watcher.events.length <= eventsMax) continue;
        watcher.events = [];
        watcher.hasLost = true;
      }
    } catch (error) {
      watcher.failure = error;
    }
  }

  #get({ sandboxId }: EnvdSandbox, id: string): Watcher {
    const watcher = this.#watchers.get(id);
    if (watcher?.sandboxId === sandboxId) return watcher;
    throw new EnvdError('not_found', `watcher with id ${id.slice(0, 100)} not found`);
  }

  #touch(id: string, watcher: Watcher): void {
    watcher.cancelIdle();
    watcher.cancelIdle = this.#timers.after(idleMs, () => this.#end(id));
  }

  #end(id: string): void {
    const watcher = this.#watchers.get(id);
    this.#watchers.delete(id);
    watcher?.cancelIdle();
    watcher?.ending.abort();
  }
}
