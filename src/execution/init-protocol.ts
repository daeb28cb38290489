/** The frames between a node and the init of one sandbox, as native/PROTOCOL.md has them. What init sends is hostile input. */
import {
  BodyReader,
  encodeFrame,
  type Frame,
  field,
  MalformedFrame,
  readFields,
  textField,
  u8,
  u16,
  u32,
  u64,
} from '../base/index.ts';
import type { TerminalSize } from '../protocol/index.ts';

export const protocolVersion = 1;
/** Init sends at most 64 KiB of output in a frame, and nothing else that is larger. */
export const initFrameLimitBytes = 128 * 1024;

export const connectionKinds = { control: 1, run: 2, relay: 3 } as const;
/** `foreground`: what runs in front on the run's terminal, as a key would. */
const signalTargets = { leader: 1, tree: 2, all: 3, foreground: 4 } as const;
export type SignalTarget = keyof typeof signalTargets;
/** A follower of this number is told and holds nobody back. */
export const watcherNumber = 0xffff_ffff;
/** Of one INPUT request. */
export const inputLimitBytes = 64 * 1024;

const types = {
  hello: 1,
  helloOk: 2,
  helloNo: 3,
  ok: 20,
  error: 21,
  status: 22,
  statusIs: 23,
  list: 24,
  runIs: 25,
  signal: 26,
  resize: 27,
  deadline: 28,
  fence: 29,
  forget: 30,
  shutdown: 31,
  subscribe: 32,
  event: 33,
  follow: 34,
  input: 35,
  journalIs: 36,
  journalState: 37,
  run: 40,
  started: 41,
  refused: 42,
  stdout: 43,
  stderr: 44,
  exited: 45,
  treeEnded: 46,
  stdin: 47,
  stdinEnd: 48,
  sessionEnded: 50,
  connect: 60,
  connected: 61,
} as const;

/** Codes of ERROR and REFUSED. */
export const refusalCodes = {
  malformed: 1,
  startedBefore: 2,
  initLimit: 3,
  noSuchRun: 4,
  fence: 5,
  ending: 6,
  generation: 7,
  workingDirectory: 8,
  user: 9,
  program: 10,
  fork: 11,
  other: 12,
  sessionShell: 15,
  sessionBusy: 16,
  sessionOver: 17,
  readOnlyVariable: 18,
} as const;

export interface Refusal {
  readonly code: number;
  readonly errno: number;
  readonly text: string;
}

export interface InitStatus {
  readonly generation: number;
  readonly deadlineBootMs: number;
  readonly fence: number;
  readonly running: number;
}

/** What ended a leader. */
export type EndCause = 'itself' | 'timeout' | 'asked' | 'out of memory' | 'sandbox ending';
const endCauses: readonly EndCause[] = ['itself', 'timeout', 'asked', 'out of memory', 'sandbox ending'];

export type RunKind = 'plain' | 'session' | 'in session' | 'from session';
const runKinds: readonly RunKind[] = ['plain', 'session', 'in session', 'from session'];

export interface RunEntry {
  readonly run: string;
  readonly kind: RunKind;
  /** That the run happens in or was started from; null when either of them is over. */
  readonly session: string | null;
  readonly pid: number;
  readonly state: 'running' | 'leader ended' | 'ended';
  readonly waitStatus: number;
  readonly cause: EndCause;
  readonly startedBootMs: number;
  /** 0 while it runs. */
  readonly endedBootMs: number;
}

export interface JournalState {
  readonly first: number;
  readonly end: number;
  /** The end of the tree is written. */
  readonly isComplete: boolean;
}

export type Hello = { readonly kind: 'hello'; readonly generation: number } | { readonly kind: 'wrong version' };

export type ControlAnswer =
  | Hello
  | { readonly kind: 'ok'; readonly request: number }
  | { readonly kind: 'error'; readonly request: number; readonly refusal: Refusal }
  | { readonly kind: 'status'; readonly request: number; readonly status: InitStatus }
  | { readonly kind: 'run'; readonly request: number; readonly entry: RunEntry }
  | { readonly kind: 'event'; readonly entry: RunEntry }
  | { readonly kind: 'journal'; readonly request: number; readonly journal: JournalState };

export type RunAnswer =
  | Hello
  | { readonly kind: 'started'; readonly pid: number }
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | { readonly kind: 'stdout' | 'stderr'; readonly bytes: Buffer }
  | {
      readonly kind: 'exited';
      readonly waitStatus: number;
      readonly cause: EndCause;
      readonly startedBootMs: number;
      readonly endedBootMs: number;
    }
  /** The shell of the session ended in this run; how is said by what follows. */
  | { readonly kind: 'session ended' }
  | { readonly kind: 'tree ended' };

export interface InputOrder {
  readonly run: string;
  /** null: behind what came before. */
  readonly offset: number | null;
  readonly bytes: Uint8Array;
}

export interface RunRequest {
  readonly run: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  /** `undefined` is root, for whom init looks nothing up. */
  readonly user: string | undefined;
  readonly stdinOpen: boolean;
  readonly timeoutMs: number | null;
  /** Refused unless it is the fence that init has, once init has one. */
  readonly token: number;
  readonly generation: number;
  readonly script: Uint8Array | null;
  /** Between TERM and KILL at the timeout; init's default when absent. */
  readonly graceMs?: number;
  /** Output goes to a journal instead of to the connection. */
  readonly journal?: { readonly name: string; readonly limitBytes: number };
  /** Its three streams are a terminal of this size. */
  readonly terminal?: TerminalSize | undefined;
}

/** What every RUN has: which run of which life, and what init checks first. */
export interface RunHead {
  readonly run: string;
  readonly token: number;
  readonly generation: number;
}

export const runFlags = {
  terminal: 1,
  stdinOpen: 2,
  checkToken: 8,
  session: 16,
  fork: 32,
  keepVariables: 64,
  detach: 128,
} as const;

/** A RUN of the fields that every one has, and others. */
export function runFrameOf(head: RunHead, flags: number, ...fields: readonly Buffer[]): Buffer {
  return encodeFrame(
    types.run,
    textField(1, head.run),
    field(6, u32(runFlags.checkToken | flags)),
    field(9, u64(head.token)),
    field(10, u64(head.generation)),
    ...fields,
  );
}

/** As an offset of input: behind what came before. */
const behindAll = Buffer.alloc(8, 0xff);

export function helloFrame(kind: number): Buffer {
  return encodeFrame(types.hello, u16(protocolVersion), u8(kind));
}

export const controlFrames = {
  status: (request: number) => encodeFrame(types.status, u32(request)),
  list: (request: number) => encodeFrame(types.list, u32(request)),
  signal: (
    request: number,
    options: { readonly run: string; readonly signal: number; readonly target: SignalTarget },
  ) =>
    encodeFrame(
      types.signal,
      u32(request),
      u8(signalTargets[options.target]),
      u8(options.signal),
      ...runName(options.run),
    ),
  forget: (request: number, run: string) => encodeFrame(types.forget, u32(request), ...runName(run)),
  subscribe: (request: number) => encodeFrame(types.subscribe, u32(request)),
  follow: (request: number, options: { readonly run: string; readonly offset: number; readonly follower: number }) =>
    encodeFrame(types.follow, u32(request), u64(options.offset), ...runName(options.run), u32(options.follower)),
  input: (request: number, options: InputOrder) => {
    const offset = options.offset === null ? behindAll : u64(options.offset);
    return encodeFrame(types.input, u32(request), offset, ...runName(options.run), options.bytes);
  },
  resize: (request: number, options: TerminalSize & { readonly run: string }) =>
    encodeFrame(types.resize, u32(request), u16(options.columns), u16(options.rows), ...runName(options.run)),
  journalState: (request: number, run: string) => encodeFrame(types.journalState, u32(request), ...runName(run)),
  deadline: (request: number, bootMs: number) => encodeFrame(types.deadline, u32(request), u64(bootMs)),
  fence: (request: number, token: number) => encodeFrame(types.fence, u32(request), u64(token)),
  shutdown: (request: number, graceMs: number) => encodeFrame(types.shutdown, u32(request), u32(graceMs)),
} as const;

function runName(run: string): [Buffer, Buffer] {
  const bytes = Buffer.from(run);
  return [u8(bytes.length), bytes];
}

export function runFrame(order: RunRequest): Buffer {
  const { terminal } = order;
  return runFrameOf(
    order,
    (order.stdinOpen ? runFlags.stdinOpen : 0) | (terminal === undefined ? 0 : runFlags.terminal),
    ...order.argv.map((argument) => textField(2, argument)),
    ...Object.entries(order.env).map(([name, value]) => textField(3, `${name}=${value}`)),
    textField(4, order.cwd),
    ...(order.user === undefined ? [] : [textField(5, order.user)]),
    ...(order.timeoutMs === null ? [] : [field(7, u64(order.timeoutMs))]),
    ...(order.graceMs === undefined ? [] : [field(8, u32(order.graceMs))]),
    ...(terminal === undefined ? [] : [field(11, Buffer.concat([u16(terminal.columns), u16(terminal.rows)]))]),
    ...(order.script === null ? [] : [field(12, order.script)]),
    ...(order.journal === undefined ? [] : journalFields(order.journal)),
  );
}

export function journalFields(journal: { readonly name: string; readonly limitBytes: number }): Buffer[] {
  return [textField(13, journal.name), field(14, u64(journal.limitBytes))];
}

export function stdinFrame(bytes: Uint8Array): Buffer {
  return encodeFrame(types.stdin, bytes);
}

export function stdinEndFrame(): Buffer {
  return encodeFrame(types.stdinEnd);
}

/** `address`, in network order and of the family's length, is one of the sandbox's own; absent: loopback. */
export function connectFrame(options: {
  readonly port: number;
  readonly family: 0 | 4 | 6;
  readonly address?: Uint8Array;
}): Buffer {
  return encodeFrame(types.connect, u16(options.port), u8(options.family), options.address ?? new Uint8Array());
}

/** What a relay says before it is raw bytes. */
export function parseRelayAnswer(frame: Frame): Hello | { readonly kind: 'connected' } | { readonly kind: 'refused' } {
  const body = new BodyReader(frame.body);
  if (frame.type === types.helloOk || frame.type === types.helloNo) return parseHello(frame.type, body);
  if (frame.type === types.connected) return whole(body, { kind: 'connected' });
  if (frame.type === types.refused) return { kind: 'refused' };
  throw new MalformedFrame(`Init sent a frame of type ${frame.type} on a relay.`);
}

export function parseControlAnswer(frame: Frame): ControlAnswer {
  const body = new BodyReader(frame.body);
  switch (frame.type) {
    case types.helloOk:
    case types.helloNo:
      return parseHello(frame.type, body);
    case types.ok:
      return whole(body, { kind: 'ok', request: body.u32() });
    case types.error:
      return { kind: 'error', request: body.u32(), refusal: readRefusal(body) };
    case types.statusIs:
      return { kind: 'status', request: body.u32(), status: readStatus(body) };
    case types.runIs:
      return { kind: 'run', request: body.u32(), entry: readRunEntry(body.rest()) };
    case types.event:
      return { kind: 'event', entry: readRunEntry(body.rest()) };
    case types.journalIs:
      return { kind: 'journal', request: body.u32(), journal: readJournalState(body) };
    default:
      throw new MalformedFrame(`Init sent a frame of type ${frame.type} on its control connection.`);
  }
}

export function parseRunAnswer(frame: Frame): RunAnswer {
  const body = new BodyReader(frame.body);
  switch (frame.type) {
    case types.helloOk:
    case types.helloNo:
      return parseHello(frame.type, body);
    case types.started:
      return whole(body, { kind: 'started', pid: body.i32() });
    case types.refused:
      return { kind: 'refused', refusal: readRefusal(body) };
    case types.stdout:
      return { kind: 'stdout', bytes: body.rest() };
    case types.stderr:
      return { kind: 'stderr', bytes: body.rest() };
    case types.exited:
      return whole(body, {
        kind: 'exited',
        waitStatus: body.u32(),
        cause: endCauseOf(body.u8()),
        startedBootMs: body.u64(),
        endedBootMs: body.u64(),
      });
    case types.sessionEnded:
      return whole(body, { kind: 'session ended' });
    case types.treeEnded:
      return whole(body, { kind: 'tree ended' });
    default:
      throw new MalformedFrame(`Init sent a frame of type ${frame.type} on a run's connection.`);
  }
}

function parseHello(type: number, body: BodyReader): Hello {
  const version = body.u16();
  if (type === types.helloNo || version !== protocolVersion) return { kind: 'wrong version' };
  return whole(body, { kind: 'hello', generation: body.u64() });
}

function readRefusal(body: BodyReader): Refusal {
  return { code: body.u16(), errno: body.u32(), text: body.rest().toString('utf8') };
}

function readStatus(body: BodyReader): InitStatus {
  const status = { generation: body.u64(), deadlineBootMs: body.u64(), fence: body.u64(), running: body.u32() };
  body.u32(); // Ended runs that init remembers.
  body.u64(); // Init's clock.
  return whole(body, status);
}

function readJournalState(body: BodyReader): JournalState {
  const state = { first: body.u64(), end: body.u64(), isComplete: body.u8() === 3 };
  if (state.first > state.end) throw new MalformedFrame('A journal that begins behind its end.');
  return whole(body, state);
}

const runIsTags = new Set([1, 2, 3, 4, 5, 6, 7, 8, 9]);

function readRunEntry(bytes: Buffer): RunEntry {
  const fields = readFields(bytes, runIsTags);
  const need = (tag: number): BodyReader => {
    const found = fields.get(tag);
    if (found === undefined) throw new MalformedFrame(`A run without field ${tag}.`);
    return found;
  };
  const state = (['running', 'leader ended', 'ended'] as const)[need(3).u8() - 1];
  if (state === undefined) throw new MalformedFrame('A run in a state that does not exist.');
  const kind = runKinds[fields.get(8)?.u8() ?? 0];
  if (kind === undefined) throw new MalformedFrame('A run of a kind that does not exist.');
  const over = state !== 'running';
  return {
    run: need(1).rest().toString('utf8'),
    kind,
    session: fields.get(9)?.rest().toString('utf8') ?? null,
    pid: need(2).i32(),
    state,
    waitStatus: over ? need(4).u32() : 0,
    cause: over ? endCauseOf(need(5).u8()) : 'itself',
    startedBootMs: fields.get(6)?.u64() ?? 0,
    endedBootMs: fields.get(7)?.u64() ?? 0,
  };
}

export function endCauseOf(code: number): EndCause {
  const cause = endCauses[code];
  if (cause === undefined) throw new MalformedFrame(`A run ended for reason ${code}, which does not exist.`);
  return cause;
}

/** The arguments of `value` have been read when this runs; anything behind them is a violation. */
function whole<Value>(body: BodyReader, value: Value): Value {
  body.end();
  return value;
}
