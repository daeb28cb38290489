/**
 * What control asks of a node about processes: commands with a life of their own. Part of NodeApi; the same rules hold.
 *
 *  - `startProcess` is exact: repeated with the same process id it answers with the process that is there, and starts nothing.
 *  - The record of a process is durable before it is started; one that could not be started leaves no record.
 *  - Output is addressed by cursor: a position in the journal, over both streams in order, always between two records of it. What a
 *    reader gets after a cursor follows what it got before it, without gap or duplicate, whoever restarted meanwhile.
 *  - The end of the leader and the end of its tree are two facts. An exit code is one that init saw, or null.
 */
import type { ProcessId, SessionId } from './ids.ts';
import type { Command, LifeOrder } from './node-api.ts';

export interface StartProcessOrder extends LifeOrder {
  readonly processId: ProcessId;
  /** What was asked for, in a word, where a caller may repeat it: a repeat that says otherwise is refused (`idempotency_key_reused`). */
  readonly request?: string | undefined;
  /** Another handle that its caller chose; one process of a life at a time has it (`process_exists`). */
  readonly name: string | null;
  /** null: the caller brought none. Refused unless it is the current one, while a lease is held. */
  readonly leaseToken: number | null;
  readonly command: Command;
  readonly cwd: string | null;
  /** null unsets what the sandbox sets. */
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
  /** Else it reads the end of its input at once. */
  readonly stdinOpen: boolean;
  readonly timeoutMs: number | null;
  /** Between TERM and KILL at the timeout. */
  readonly graceMs: number;
  /** How much of its newest output is kept. */
  readonly keepBytes: number;
  /** Record and output are removed when its tree has ended and nobody follows it. */
  readonly autoCleanup: boolean;
}

/** A process by its id or its name, in the life that the order names. */
export interface ProcessOrder extends LifeOrder {
  readonly process: string;
}

/** How a leader ended. `exitCode` is null when nobody saw the end: the sandbox ended first. */
export interface ProcessExit {
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly timedOut: boolean;
  /** By a signal asked for through the API, or by the end of the sandbox. */
  readonly killed: boolean;
  readonly outOfMemory: boolean;
  readonly sandboxEnded: boolean;
  readonly endedAtMs: number;
}

export interface NodeProcess {
  readonly processId: ProcessId;
  readonly generation: number;
  readonly name: string | null;
  /** The session it was started from; null for any other. */
  readonly sessionId: SessionId | null;
  /** Inside the sandbox. */
  readonly pid: number;
  readonly command: Command;
  readonly cwd: string;
  readonly user: string | null;
  readonly startedAtMs: number;
  /** Of the leader; null while it runs. */
  readonly exit: ProcessExit | null;
  /** When nothing of its tree was left; null while something runs. */
  readonly treeEndedAtMs: number | null;
  readonly output: OutputRange;
  readonly stdinOpen: boolean;
}

export interface OutputRange {
  /** The oldest position that is kept. */
  readonly first: number;
  /** Where the next output will begin. */
  readonly end: number;
}

/** `cursor` is the position after the item: give it to go on behind it. */
export type ProcessItem =
  | {
      readonly kind: 'output';
      readonly stream: 'stdout' | 'stderr';
      readonly bytes: Uint8Array;
      readonly cursor: number;
    }
  /** So many bytes of the journal stood here and are no longer kept; a record of it has 13 bytes beside its output. */
  | { readonly kind: 'dropped'; readonly bytes: number; readonly cursor: number }
  | { readonly kind: 'exited'; readonly exit: ProcessExit; readonly cursor: number }
  /** The tree has ended; nothing follows. */
  | { readonly kind: 'ended'; readonly cursor: number };

export interface FollowProcessOrder extends ProcessOrder {
  /** 0: from the beginning; what is no longer kept of it comes first, as `dropped`. */
  readonly cursor: number;
  /** Else it ends with what is there now. */
  readonly live: boolean;
}

export interface WriteStdinOrder extends ProcessOrder {
  readonly leaseToken: number | null;
  readonly bytes: Uint8Array;
  /** How many bytes were written before these; what is there already is skipped, a gap is refused. null: append. */
  readonly offset: number | null;
  readonly close: boolean;
}

export interface SignalProcessOrder extends ProcessOrder {
  readonly leaseToken: number | null;
  readonly signal: number;
  readonly target: 'leader' | 'tree';
  /** Then KILL to the tree, if something of it is left. null: only the signal. */
  readonly graceMs: number | null;
}

export interface KillProcessesOrder extends LifeOrder {
  readonly leaseToken: number | null;
  readonly signal: number;
  readonly graceMs: number | null;
}

export interface WaitProcessOrder extends ProcessOrder {
  readonly for: 'exit' | 'tree';
  readonly timeoutMs: number;
}

export interface ListProcessesOrder extends LifeOrder {
  /** Only those that were started from this session. null: all. */
  readonly sessionId: SessionId | null;
  readonly after: string | null;
  readonly limit: number;
}

export interface ProcessPage {
  /** What lives first, and the newest first among those that do and those that do not. */
  readonly items: readonly NodeProcess[];
  readonly next: string | null;
}

export interface ProbePortOrder extends LifeOrder {
  readonly port: number;
  /** null: either. */
  readonly family: 4 | 6 | null;
  /** Asks for this path and tells the status; null: a connection is enough. */
  readonly httpPath: string | null;
  readonly timeoutMs: number;
}

export interface PortReport {
  readonly open: boolean;
  /** Of the HTTP answer; null when none was asked for or none came. */
  readonly status: number | null;
}

export interface NodeProcesses {
  startProcess(order: StartProcessOrder): Promise<NodeProcess>;
  getProcess(order: ProcessOrder): Promise<NodeProcess>;
  listProcesses(order: ListProcessesOrder): Promise<ProcessPage>;
  /** A caller that goes away ends nothing but its own reading. */
  followProcess(order: FollowProcessOrder, signal: AbortSignal): AsyncIterable<ProcessItem>;
  writeStdin(order: WriteStdinOrder): Promise<{ readonly offset: number }>;
  /** Answers when the signal is sent. Of an ended process: succeeds and changes nothing. */
  signalProcess(order: SignalProcessOrder): Promise<NodeProcess>;
  /** How many lived when it was called; two calls at once never count one twice. */
  killProcesses(order: KillProcessesOrder): Promise<{ readonly count: number }>;
  /** Answers when it has ended or the time is over; the process tells which. */
  waitProcess(order: WaitProcessOrder, signal: AbortSignal): Promise<NodeProcess>;
  /** Refuses one that runs. */
  removeProcess(order: ProcessOrder & { readonly leaseToken: number | null }): Promise<void>;
  probePort(order: ProbePortOrder, signal: AbortSignal): Promise<PortReport>;
}
