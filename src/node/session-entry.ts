/**
 * One session in the node's memory.
 *
 * Invariants:
 *  - Its end is told once; the first telling stays.
 *  - From its end on its queue is closed: nothing waits in it or begins in it any more.
 */
import type { Clock } from '../base/index.ts';
import { type EndCause, parseWaitStatus, type RunEntry } from '../execution/index.ts';
import { PlatformError, type SessionEnd, type SessionEndReason } from '../protocol/index.ts';
import { SessionQueue } from './session-queue.ts';
import type { SessionRecord } from './session-record.ts';

export class SessionEntry {
  record: SessionRecord;
  /** Set while its start is under way: that init does not have it means nothing then. */
  isStarting = false;
  readonly queue: SessionQueue;
  readonly #ended = Promise.withResolvers<SessionEnd>();

  constructor(record: SessionRecord, clock: Clock) {
    this.record = record;
    this.queue = new SessionQueue(clock);
    if (record.end !== null) this.#over(record.end);
  }

  get isLive(): boolean {
    return this.record.end === null;
  }

  /** It has ended as far as anybody knows, but nobody saw it. */
  get isEndUnseen(): boolean {
    const { end } = this.record;
    return end !== null && end.exitCode === null && end.signal === null;
  }

  /** Resolves with its end. */
  get ended(): Promise<SessionEnd> {
    return this.#ended.promise;
  }

  end(end: SessionEnd): void {
    if (!this.isLive) return;
    this.record = { ...this.record, end };
    this.#over(end);
  }

  /** Takes what init tells of its run. */
  take(run: RunEntry): void {
    if (this.record.pid === null) this.record = { ...this.record, pid: run.pid };
    if (run.state !== 'running') this.end(endOf(this.record, { ...run, ...parseWaitStatus(run.waitStatus) }));
  }

  /** What whoever comes later is told. */
  terminated(): PlatformError {
    const { sessionId, name, end } = this.record;
    const details = { sessionId, name, ...end };
    const message = `The session ${name ?? sessionId} has ended (${describe(end)}); nothing ran. Create it again to begin a new shell.`;
    return new PlatformError('session_terminated', message, { details });
  }

  #over(end: SessionEnd): void {
    this.queue.close(() => this.terminated());
    this.#ended.resolve(end);
  }
}

export function endOf(
  record: Pick<SessionRecord, 'startedAtMs' | 'bootedAtMs'>,
  seen: {
    readonly exitCode: number;
    readonly signal: string | null;
    readonly cause: EndCause;
    readonly endedBootMs: number;
  },
): SessionEnd {
  const { exitCode, signal } = seen;
  const endedAtMs = Math.max(record.startedAtMs, record.bootedAtMs + seen.endedBootMs);
  return { exitCode, signal, reason: reasonOf(seen.cause, signal), endedAtMs };
}

/** Nobody saw it: no code is made up for it. */
export function unseenEnd(reason: SessionEndReason, endedAtMs: number): SessionEnd {
  return { exitCode: null, signal: null, reason, endedAtMs };
}

function reasonOf(cause: EndCause, signal: string | null): SessionEndReason {
  switch (cause) {
    case 'timeout':
      return 'timeout';
    case 'asked':
      return 'killed';
    case 'out of memory':
      return 'out_of_memory';
    case 'sandbox ending':
      return 'sandbox_ended';
    case 'itself':
      return signal === null ? 'exited' : 'crashed';
  }
}

function describe(end: SessionEnd | null): string {
  if (end === null) return 'its end was not seen';
  const code = end.exitCode === null ? '' : `, exit code ${end.exitCode}`;
  return `${end.reason.replaceAll('_', ' ')}${code}`;
}
