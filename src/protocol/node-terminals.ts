/**
 * What control asks of a node about terminals: a pty with a program in it, and clients that come and go. Part of NodeApi; the same rules
 * hold.
 *
 *  - `open` makes at most one pty for a name of a life, whoever asks at once and whatever restarts in between; one whose program has ended
 *    gives its name free.
 *  - A place in the output is a record of its journal (`cursor`) and so many bytes of output behind it (`skip`). What a reader gets after
 *    a place follows what it got before it, without gap or duplicate; a reader that lost something hears `dropped` first, and what
 *    follows begins outside of any escape sequence or character.
 *  - A reader holds nobody back: not the program, not another reader. It reads what is kept at its own pace.
 */
import type { TerminalId } from './ids.ts';
import type { Command, LifeOrder } from './node-api.ts';
import type { ProcessExit } from './node-processes.ts';

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface OpenTerminalOrder extends LifeOrder, TerminalSize {
  /** Of the terminal, if one must be made. */
  readonly terminalId: TerminalId;
  /** The handle of its callers: they share the one that is there. null: a new terminal. */
  readonly name: string | null;
  /** null: the caller brought none. Refused unless it is the current one, while a lease is held. */
  readonly leaseToken: number | null;
  /** null: a shell. Of a terminal that is there already it is not looked at, nor is anything below. */
  readonly command: Command | null;
  readonly cwd: string | null;
  /** null unsets what the sandbox sets. */
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
  /** After which everything in it is killed. null: never. */
  readonly timeoutMs: number | null;
}

/** A terminal by its id or its name, in the life that the order names. */
export interface TerminalOrder extends LifeOrder {
  readonly terminal: string;
}

export interface ChangeTerminalOrder extends TerminalOrder {
  readonly leaseToken: number | null;
}

export interface NodeTerminal extends TerminalSize {
  readonly terminalId: TerminalId;
  readonly generation: number;
  readonly name: string | null;
  /** Inside the sandbox. */
  readonly pid: number;
  readonly command: Command | null;
  readonly cwd: string;
  readonly user: string | null;
  readonly startedAtMs: number;
  /** Of its program; null while it runs. The terminal is over with it. */
  readonly exit: ProcessExit | null;
}

export interface TerminalPlace {
  readonly cursor: number;
  readonly skip: number;
}

/** `place` is behind the item: give it to go on there. */
export type TerminalItem =
  /** First, where the order named no place: here it begins. */
  | { readonly kind: 'begun'; readonly place: TerminalPlace }
  | { readonly kind: 'output'; readonly bytes: Uint8Array; readonly place: TerminalPlace }
  /** About so many bytes are lost to this reader. */
  | { readonly kind: 'dropped'; readonly bytes: number; readonly place: TerminalPlace }
  /** The program has ended; nothing follows. */
  | { readonly kind: 'exited'; readonly exit: ProcessExit; readonly place: TerminalPlace };

export interface FollowTerminalOrder extends TerminalOrder {
  /** null: the newest output that is kept, at most about `replayBytes` of it. */
  readonly from: TerminalPlace | null;
  readonly replayBytes: number;
}

export interface WriteTerminalOrder extends ChangeTerminalOrder {
  /** Typed, in the order of the calls. */
  readonly bytes: Uint8Array;
}

/** `foreground`: what runs in front, as Ctrl-C does it; only for INT, QUIT and TSTP. */
export type TerminalTarget = 'foreground' | 'leader' | 'tree';

export interface SignalTerminalOrder extends ChangeTerminalOrder {
  readonly signal: number;
  readonly target: TerminalTarget;
}

export interface DestroyTerminalOrder extends ChangeTerminalOrder {
  /** Between asking its processes to end and ending them. */
  readonly graceMs: number;
}

export interface NodeTerminals {
  open(order: OpenTerminalOrder): Promise<{ readonly terminal: NodeTerminal; readonly created: boolean }>;
  get(order: TerminalOrder): Promise<NodeTerminal>;
  /** What runs first, and the newest first; there are never more than a bounded number. */
  list(order: LifeOrder): Promise<readonly NodeTerminal[]>;
  /** A caller that goes away ends nothing but its own reading. */
  follow(order: FollowTerminalOrder, signal: AbortSignal): AsyncIterable<TerminalItem>;
  write(order: WriteTerminalOrder): Promise<void>;
  resize(order: ChangeTerminalOrder & TerminalSize): Promise<NodeTerminal>;
  /** Of one whose program has ended: succeeds and changes nothing. */
  signal(order: SignalTerminalOrder): Promise<NodeTerminal>;
  /** Ends everything that was started in it, and forgets it. Answers when nothing is left. Of an unknown terminal: succeeds. */
  destroy(order: DestroyTerminalOrder): Promise<void>;
}
