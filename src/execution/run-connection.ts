/**
 * One command on its own connection, from RUN to the end of its leader (or of its whole tree, when it was ended by force).
 *
 * Invariants:
 *  - It settles exactly once, with what init said, or with `lost`: the connection ended, or init broke the protocol.
 *  - The order of frames is checked: hello, started, output, exited, tree ended. Anything else counts as lost.
 */
import type { Socket } from 'node:net';
import { assertNever, FrameReader } from '../base/index.ts';
import {
  connectionKinds,
  type EndCause,
  helloFrame,
  initFrameLimitBytes,
  parseRunAnswer,
  type Refusal,
  type RunAnswer,
  stdinEndFrame,
  stdinFrame,
} from './init-protocol.ts';

const stdinChunkBytes = 64 * 1024;
/** After a leader was ended by force, how long the rest of its tree may take: the grace of init, and time to die. */
const treeEndTimeoutMs = 15_000;

export type RunEnd =
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | {
      readonly kind: 'exited';
      readonly waitStatus: number;
      readonly cause: EndCause;
      readonly durationMs: number;
      /** It ran in a session, and ended because the shell did. */
      readonly isEndOfSession: boolean;
    }
  /** `admitted`: init was reached, so the command may have run. */
  | { readonly kind: 'lost'; readonly admitted: boolean; readonly error: Error };

/** A connection for one run, and what becomes of it when init would take another on it. */
export interface RunLine {
  readonly socket: Socket;
  /** It served a run before. */
  readonly isGreeted: boolean;
  giveBack(): void;
}

type OnOutput = (stream: 'stdout' | 'stderr', bytes: Buffer) => void;

/**
 * Everything is sent in one write, and nothing later: a write that fails because the peer has closed would take with it what there is
 * still to read. Init therefore closes after us, never before.
 */
export function runOnConnection(
  line: RunLine,
  options: { readonly frame: Buffer; readonly stdin: Uint8Array | null; readonly onOutput: OnOutput },
): Promise<RunEnd> {
  const run = new Run(line, options);
  const hello = line.isGreeted ? [] : [helloFrame(connectionKinds.run)];
  const stdin = options.stdin === null ? [] : stdinFrames(options.stdin);
  line.socket.write(Buffer.concat([...hello, options.frame, ...stdin]));
  return run.end;
}

function stdinFrames(bytes: Uint8Array): Buffer[] {
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.byteLength; at += stdinChunkBytes) {
    frames.push(stdinFrame(bytes.subarray(at, at + stdinChunkBytes)));
  }
  return [...frames, stdinEndFrame()];
}

class Run {
  readonly #line: RunLine;
  readonly #socket: Socket;
  readonly #onOutput: OnOutput;
  readonly #reader = new FrameReader({ limitBytes: initFrameLimitBytes });
  readonly #end = Promise.withResolvers<RunEnd>();
  #state: 'connecting' | 'connected' | 'greeted' | 'started' | 'exited' | 'over' = 'connecting';
  #exit: Extract<RunEnd, { kind: 'exited' }> | undefined;
  readonly #isReusable: boolean;
  #isTreeOver = false;
  #isEndOfSession = false;
  #treeTimer: NodeJS.Timeout | undefined;

  constructor(line: RunLine, options: { readonly onOutput: OnOutput; readonly stdin: Uint8Array | null }) {
    const { socket, isGreeted } = line;
    this.#line = line;
    this.#socket = socket;
    this.#onOutput = options.onOutput;
    // Input may still be on its way when a command has ended: init takes no other run behind it.
    this.#isReusable = options.stdin === null;
    if (isGreeted) this.#state = 'greeted';
    else socket.on('connect', this.#onConnect);
    socket.on('data', this.#onData);
    socket.on('error', this.#onError);
    socket.on('close', this.#onClose);
  }

  readonly #onConnect = () => {
    if (this.#state === 'connecting') this.#state = 'connected';
  };
  readonly #onData = (chunk: Buffer) => this.#read(chunk);
  readonly #onError = (error: Error) => this.#lose(error);
  readonly #onClose = () => this.#lose(new Error('Init closed the connection.'));

  get end(): Promise<RunEnd> {
    return this.#end.promise;
  }

  #read(chunk: Buffer): void {
    try {
      for (const frame of this.#reader.push(chunk)) {
        if (this.#state === 'over') return;
        this.#take(parseRunAnswer(frame));
      }
      // The end of the tree, where it comes with that of the leader, makes the connection good for another run.
      if (this.#state === 'exited' && this.#exit !== undefined && !isForced(this.#exit)) this.#settle(this.#exit);
    } catch (error) {
      this.#lose(error as Error);
    }
  }

  #take(answer: RunAnswer): void {
    switch (answer.kind) {
      case 'wrong version':
        throw new Error('Init speaks another version of the protocol.');
      case 'hello':
        this.#step('connected', 'greeted');
        break;
      case 'refused':
        this.#step('greeted', 'exited');
        this.#settle({ kind: 'refused', refusal: answer.refusal });
        break;
      case 'started':
        this.#step('greeted', 'started');
        break;
      case 'stdout':
      case 'stderr':
        this.#takeOutput(answer);
        break;
      case 'session ended':
        this.#step('started', 'started');
        this.#isEndOfSession = true;
        break;
      case 'exited':
        this.#step('started', 'exited');
        this.#takeExit(answer);
        break;
      case 'tree ended':
        this.#step('exited', 'exited');
        this.#isTreeOver = true;
        this.#settle(this.#exit!);
        break;
      default:
        assertNever(answer);
    }
  }

  /** After the leader's end it is of a background child, and the result is complete without it. */
  #takeOutput(answer: Extract<RunAnswer, { kind: 'stdout' | 'stderr' }>): void {
    if (this.#state === 'started') this.#onOutput(answer.kind, answer.bytes);
    else if (this.#state !== 'exited') throw new Error(`Output of a command that is ${this.#state}.`);
  }

  /** A command that ended by itself is over here; one that was forced is over when nothing of its tree is left. */
  #takeExit(answer: Extract<RunAnswer, { kind: 'exited' }>): void {
    const durationMs = Math.max(0, answer.endedBootMs - answer.startedBootMs);
    const { waitStatus, cause } = answer;
    const isEndOfSession = this.#isEndOfSession;
    const exit = { kind: 'exited', waitStatus, cause, durationMs, isEndOfSession } as const;
    this.#exit = exit;
    if (isForced(exit)) this.#treeTimer = setTimeout(() => this.#settle(exit), treeEndTimeoutMs);
  }

  #step(from: 'connected' | 'greeted' | 'started' | 'exited', to: 'greeted' | 'started' | 'exited'): void {
    if (this.#state !== from) throw new Error(`Init sent what belongs to "${to}" while the run was ${this.#state}.`);
    this.#state = to;
  }

  #lose(error: Error): void {
    this.#settle(this.#exit ?? { kind: 'lost', admitted: this.#state !== 'connecting', error });
  }

  #settle(end: RunEnd): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    clearTimeout(this.#treeTimer);
    this.#end.resolve(end);
    if (!this.#isTreeOver || !this.#isReusable) {
      this.#socket.destroy();
      return;
    }
    this.#socket.off('connect', this.#onConnect);
    this.#socket.off('data', this.#onData);
    this.#socket.off('error', this.#onError);
    this.#socket.off('close', this.#onClose);
    this.#line.giveBack();
  }
}

function isForced(exit: Extract<RunEnd, { kind: 'exited' }>): boolean {
  return exit.cause === 'timeout' || exit.cause === 'asked';
}
