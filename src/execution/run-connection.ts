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
  type RunRequest,
  runFrame,
  stdinEndFrame,
  stdinFrame,
} from './init-protocol.ts';

const stdinChunkBytes = 64 * 1024;
/** After a leader was ended by force, how long the rest of its tree may take: the grace of init, and time to die. */
const treeEndTimeoutMs = 15_000;

export type RunEnd =
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | { readonly kind: 'exited'; readonly waitStatus: number; readonly cause: EndCause; readonly durationMs: number }
  /** `admitted`: init was reached, so the command may have run. */
  | { readonly kind: 'lost'; readonly admitted: boolean; readonly error: Error };

export interface RunHooks {
  readonly onStarted: () => void;
  readonly onOutput: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
}

/**
 * Everything is sent in one write, and nothing later: a write that fails because the peer has closed would take with it what there is
 * still to read. Init therefore closes after us, never before.
 */
export function runOnConnection(
  socket: Socket,
  options: { readonly request: RunRequest; readonly stdin: Uint8Array | null; readonly hooks: RunHooks },
): Promise<RunEnd> {
  const run = new Run(socket, options.hooks);
  const stdin = options.stdin === null ? [] : stdinFrames(options.stdin);
  socket.write(Buffer.concat([helloFrame(connectionKinds.run), runFrame(options.request), ...stdin]));
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
  readonly #socket: Socket;
  readonly #hooks: RunHooks;
  readonly #reader = new FrameReader({ limitBytes: initFrameLimitBytes });
  readonly #end = Promise.withResolvers<RunEnd>();
  #state: 'connecting' | 'connected' | 'greeted' | 'started' | 'exited' | 'over' = 'connecting';
  #exit: Extract<RunEnd, { kind: 'exited' }> | undefined;
  #treeTimer: NodeJS.Timeout | undefined;

  constructor(socket: Socket, hooks: RunHooks) {
    this.#socket = socket;
    this.#hooks = hooks;
    socket.on('connect', () => {
      if (this.#state === 'connecting') this.#state = 'connected';
    });
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('error', (error) => this.#lose(error));
    socket.on('close', () => this.#lose(new Error('Init closed the connection.')));
  }

  get end(): Promise<RunEnd> {
    return this.#end.promise;
  }

  #read(chunk: Buffer): void {
    try {
      for (const frame of this.#reader.push(chunk)) {
        if (this.#state === 'over') return;
        this.#take(parseRunAnswer(frame));
      }
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
        this.#hooks.onStarted();
        break;
      case 'stdout':
      case 'stderr':
        this.#takeOutput(answer);
        break;
      case 'exited':
        this.#step('started', 'exited');
        this.#takeExit(answer);
        break;
      case 'tree ended':
        this.#step('exited', 'exited');
        this.#settle(this.#exit!);
        break;
      default:
        assertNever(answer);
    }
  }

  /** After the leader's end it is of a background child, and the result is complete without it. */
  #takeOutput(answer: Extract<RunAnswer, { kind: 'stdout' | 'stderr' }>): void {
    if (this.#state === 'started') this.#hooks.onOutput(answer.kind, answer.bytes);
    else if (this.#state !== 'exited') throw new Error(`Output of a command that is ${this.#state}.`);
  }

  /** A command that ended by itself is over here; one that was forced is over when nothing of its tree is left. */
  #takeExit(answer: Extract<RunAnswer, { kind: 'exited' }>): void {
    const durationMs = Math.max(0, answer.endedBootMs - answer.startedBootMs);
    const exit = { kind: 'exited', waitStatus: answer.waitStatus, cause: answer.cause, durationMs } as const;
    this.#exit = exit;
    const forced = answer.cause === 'timeout' || answer.cause === 'asked';
    if (forced) this.#treeTimer = setTimeout(() => this.#settle(exit), treeEndTimeoutMs);
    else this.#settle(exit);
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
    this.#socket.destroy();
  }
}
