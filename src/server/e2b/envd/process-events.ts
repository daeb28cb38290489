/**
 * The output of a run as events: data, and then how it ended. The end of the leader is the end, and what it wrote before stands before it. A run that
 * its sandbox took with it has no end here: its readers find their connection broken.
 */
import type { Attachment } from '../../../control/index.ts';
import { terminalLimits } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import { EnvdError, SandboxGone } from './envd-error.ts';
import type { Message } from './messages.ts';
import type { Call } from './rpc.ts';
import type { Exit, Run } from './runs.ts';

type AttachedItem = Attachment['items'] extends AsyncIterable<infer Item> ? Item : never;

export interface RunEvent {
  readonly message: Message;
  /** With the last one. */
  readonly exit?: Exit;
}

interface Wanted {
  readonly run: Run;
  /** Else only what comes from now on. */
  readonly fromStart: boolean;
}

export function startEvent(pid: number): Message {
  return { event: { start: { pid } } };
}

export const dataEvent = {
  /** `data` is base64. */
  of: (stream: 'stdout' | 'stderr' | 'pty', data: string): Message => ({ event: { data: { [stream]: data } } }),
  end: (exit: Exit): Message => ({ event: { end: endOf(exit) } }),
} as const;

export async function* eventsOfProcess(
  processes: ControlPort['processes'],
  call: Call,
  { run, fromStart }: Wanted,
): AsyncGenerator<RunEvent, void> {
  const { caller, sandboxId, signal } = call;
  const query = !fromStart && run.end !== null ? { cursor: run.end } : {};
  for await (const item of processes.follow(caller, { sandboxId, process: run.id }, {}, query, signal)) {
    if (item.kind === 'output')
      yield { message: dataEvent.of(item.stream, Buffer.from(item.bytes).toString('base64')) };
    else if (item.kind === 'exited') return yield endedBy(item.exit, fromStart);
  }
  signal.throwIfAborted();
  throw new EnvdError('unavailable', 'The output of the process ended without its end.');
}

/** Answers when its place in the output is found, so that nothing that is printed from then on is missed. */
export async function eventsOfTerminal(
  terminals: ControlPort['terminals'],
  call: Call,
  { run, fromStart }: Wanted,
): Promise<AsyncGenerator<RunEvent, void>> {
  const { caller, sandboxId, signal } = call;
  const query = { replayBytes: fromStart ? terminalLimits.keepBytes : 0 };
  const { items } = await terminals.attach(caller, { sandboxId, terminal: run.id }, {}, query, signal);
  const iterator = items[Symbol.asyncIterator]();
  const first = await iterator.next();
  return typedEvents(first, iterator, { signal, fromStart });
}

async function* typedEvents(
  first: IteratorResult<AttachedItem>,
  rest: AsyncIterator<AttachedItem>,
  { signal, fromStart }: { readonly signal: AbortSignal; readonly fromStart: boolean },
): AsyncGenerator<RunEvent, void> {
  try {
    for (let next = first; !next.done; next = await rest.next()) {
      const item = next.value;
      if (item.kind === 'output') yield { message: dataEvent.of('pty', Buffer.from(item.bytes).toString('base64')) };
      else if (item.kind === 'exited') return yield endedBy(item.exit, fromStart);
    }
  } finally {
    await rest.return?.();
  }
  signal.throwIfAborted();
  throw new EnvdError('unavailable', 'The output of the terminal ended without its end.');
}

function endedBy(exit: Exit, isStart: boolean): RunEvent {
  if (exit.sandboxEnded) throw new SandboxGone('The sandbox has ended.');
  // Whoever started it gave it its time, and hears that it is over.
  if (exit.timedOut && isStart) throw new EnvdError('deadline_exceeded', 'The time of the process is over.');
  return { message: dataEvent.end(exit), exit };
}

function endOf({ exitCode, signal }: Exit): Message {
  if (signal === null && exitCode !== null) {
    const status = `exit status ${exitCode}`;
    return { exitCode, exited: true, status, ...(exitCode !== 0 && { error: status }) };
  }
  const status = signal === null ? 'unknown' : `signal: ${signalTexts[signal] ?? signal.toLowerCase()}`;
  return { exitCode: -1, exited: false, status, error: status };
}

const signalTexts: Readonly<Record<string, string>> = {
  SIGHUP: 'hangup',
  SIGINT: 'interrupt',
  SIGQUIT: 'quit',
  SIGILL: 'illegal instruction',
  SIGABRT: 'aborted',
  SIGFPE: 'floating point exception',
  SIGKILL: 'killed',
  SIGSEGV: 'segmentation fault',
  SIGPIPE: 'broken pipe',
  SIGTERM: 'terminated',
};
