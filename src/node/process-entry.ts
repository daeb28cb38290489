/**
 * One process in the node's memory.
 *
 * Invariants:
 *  - `exit` and the end of the tree are told once each; the first telling stays.
 *  - A tree that has ended has an exit: one that init saw, or one that says that nobody did.
 */
import { EventEmitter } from 'node:events';
import type { EndCause, RunEntry } from '../execution/index.ts';
import { parseWaitStatus } from '../execution/index.ts';
import type { ProcessExit } from '../protocol/index.ts';
import type { ProcessRecord } from './process-record.ts';

export class ProcessEntry {
  record: ProcessRecord;
  /** Set while its start is under way: that init does not have it means nothing then. */
  isStarting = false;
  /** Readers that are attached now. */
  followers = 0;
  /** Set when somebody asked for KILL, so that it is counted once. */
  isKilled = false;
  readonly #changes = new EventEmitter().setMaxListeners(0);

  constructor(record: ProcessRecord) {
    this.record = record;
  }

  get isLive(): boolean {
    return this.record.treeEndedAtMs === null;
  }

  exited(exit: ProcessExit): void {
    if (this.record.exit !== null) return;
    this.record = { ...this.record, exit, stdinOpen: false };
    this.#changes.emit('change');
  }

  treeEnded(atMs: number, output: { readonly first: number; readonly end: number }): void {
    if (!this.isLive) return;
    this.record = { ...this.record, treeEndedAtMs: atMs, output, stdinOpen: false, killAtBootMs: null };
    this.#changes.emit('change');
  }

  /** Takes what init tells of the run. */
  take(run: RunEntry): void {
    if (this.record.pid === null) this.record = { ...this.record, pid: run.pid };
    if (run.state !== 'running') this.exited(exitOf(this.record, run));
  }

  /** Resolves when `isDone`, or when the signal aborts. */
  async until(isDone: () => boolean, signal: AbortSignal): Promise<void> {
    if (isDone() || signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const onChange = () => {
      if (isDone()) resolve();
    };
    const onAbort = () => resolve();
    this.#changes.on('change', onChange);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      await promise;
    } finally {
      this.#changes.off('change', onChange);
      signal.removeEventListener('abort', onAbort);
    }
  }
}

export function exitOf(
  record: ProcessRecord,
  end: { readonly waitStatus: number; readonly cause: EndCause; readonly endedBootMs: number },
): ProcessExit {
  return {
    ...parseWaitStatus(end.waitStatus),
    timedOut: end.cause === 'timeout',
    killed: end.cause === 'asked' || end.cause === 'sandbox ending',
    outOfMemory: end.cause === 'out of memory',
    sandboxEnded: end.cause === 'sandbox ending',
    endedAtMs: Math.max(record.startedAtMs, record.bootedAtMs + end.endedBootMs),
  };
}

/** The sandbox ended before anybody saw the exit: no code is made up for it. */
export function unseenExit(atMs: number): ProcessExit {
  return {
    exitCode: null,
    signal: null,
    timedOut: false,
    killed: true,
    outOfMemory: false,
    sandboxEnded: true,
    endedAtMs: atMs,
  };
}
