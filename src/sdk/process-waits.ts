/** Waiting for a process to say something or to listen. Both end when the process does; neither ends it. */
import { PlatformError, type ResultOf, type routes } from '../protocol/index.ts';
import type { ClientClock } from './connection.ts';
import type { OutputItem } from './process-output.ts';

export interface WaitForLogOptions {
  /** Default: both, each looked at by itself. */
  readonly stream?: 'stdout' | 'stderr';
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

export interface LogMatch {
  /** What matched, and the groups of a regular expression. */
  readonly match: readonly (string | undefined)[];
  readonly groups: Readonly<Record<string, string>>;
  readonly stream: 'stdout' | 'stderr';
  /** Behind the output in which it was found. */
  readonly cursor: string;
}

export interface WaitForPortOptions {
  /** Asks for this path; without it a connection is enough. */
  readonly path?: string;
  /** Which HTTP status counts; default: any from 200 to 399. */
  readonly status?: { readonly from: number; readonly to: number };
  readonly family?: 4 | 6;
  readonly timeoutMs?: number;
  readonly intervalMs?: number;
  readonly signal?: AbortSignal;
}

/** How much of a stream is kept to look for a match in: one that is longer is not found. */
const windowLength = 1024 * 1024;
const defaultStatus = { from: 200, to: 399 } as const;
const defaultIntervalMs = 100;

/** Refuses with `process_ended`'s facts when the output ends without a match: see `noMatch`. */
export async function findInOutput(
  items: AsyncIterable<OutputItem>,
  pattern: string | RegExp,
  options: Pick<WaitForLogOptions, 'stream'>,
): Promise<LogMatch> {
  const search = searcherOf(pattern);
  const windows = { stdout: newWindow(), stderr: newWindow() };
  for await (const item of items) {
    if (item.kind === 'dropped') windows.stdout.text = windows.stderr.text = '';
    if (item.kind === 'ended') break;
    if (item.kind !== 'output' || (options.stream ?? item.stream) !== item.stream) continue;
    const window = windows[item.stream];
    // Characters may be cut anywhere, so each stream has a decoder that remembers the rest.
    window.text = (window.text + window.decoder.decode(item.bytes, { stream: true })).slice(-windowLength);
    const found = search(window.text);
    if (found !== null) {
      return { match: [...found], groups: { ...found.groups }, stream: item.stream, cursor: item.cursor };
    }
  }
  throw new PlatformError('output_ended', 'The process ended, and its output has no match.', {
    details: { pattern: String(pattern) },
  });
}

/** Asks until the answer is as wanted. `isOver` is asked between: a process that has ended will not listen any more. */
export async function pollPort(
  probe: (signal: AbortSignal) => Promise<ResultOf<(typeof routes)['probePort']>>,
  options: WaitForPortOptions & {
    readonly clock: ClientClock;
    readonly signal: AbortSignal;
    readonly isOver: (signal: AbortSignal) => Promise<boolean>;
  },
): Promise<void> {
  const { clock, signal, isOver, path, status = defaultStatus, intervalMs = defaultIntervalMs } = options;
  for (;;) {
    signal.throwIfAborted();
    const report = await probe(signal);
    if (report.open && (path === undefined || isWithin(report.status, status))) return;
    if (await isOver(signal)) {
      throw new PlatformError('output_ended', 'The process ended before the port was ready.');
    }
    await clock.wait(intervalMs, signal);
  }
}

/** A text is looked for as it is. A regular expression is copied: the caller's own may be global and remember where it was. */
function searcherOf(pattern: string | RegExp): (text: string) => RegExpMatchArray | null {
  const expression =
    typeof pattern === 'string'
      ? new RegExp(pattern.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
      : new RegExp(pattern.source, pattern.flags.replaceAll(/[gy]/g, ''));
  return (text) => expression.exec(text);
}

function newWindow() {
  return { text: '', decoder: new TextDecoder('utf-8', { ignoreBOM: true }) };
}

function isWithin(status: number | null, range: { readonly from: number; readonly to: number }): boolean {
  return status !== null && status >= range.from && status <= range.to;
}
