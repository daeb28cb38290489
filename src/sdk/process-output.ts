/**
 * The output of one process, in order, as long as it lives. A connection that breaks is opened again behind the last item that was
 * handed out, so that nothing is missed and nothing comes twice.
 */
import {
  isPlatformError,
  type OutputFrame,
  outputFrameKinds,
  outputFramesType,
  PlatformError,
  type ProcessOutputItem,
  type ProcessView,
  routes,
} from '../protocol/index.ts';
import type { CallOptions, CallRequest, Connection } from './connection.ts';
import { readOutputFrames } from './output-frames.ts';

type ExitView = Extract<ProcessOutputItem, { kind: 'exited' }>['exit'];

/** `cursor` resumes behind the item. */
export type OutputItem =
  | {
      readonly kind: 'output';
      readonly stream: 'stdout' | 'stderr';
      readonly bytes: Uint8Array;
      readonly cursor: string;
    }
  /** So many bytes were there and are no longer kept. */
  | { readonly kind: 'dropped'; readonly bytes: number; readonly cursor: string }
  | { readonly kind: 'exited'; readonly exit: ExitView; readonly cursor: string }
  | { readonly kind: 'ended'; readonly cursor: string };

export interface OutputFrom {
  /** Behind the last item already known. Without it: from the oldest that is kept. */
  readonly cursor?: string;
  /** Ends the reading, never the process. */
  readonly signal?: AbortSignal;
}

/** Which process, of which life. */
export interface ProcessCall extends CallOptions {
  readonly params: { readonly sandboxId: string; readonly process: string };
}

const reconnectFirstMs = 100;
const reconnectMaxMs = 5_000;
/** How often in a row it is tried in vain. */
const failuresMax = 60;

/** A stream of output that is open: whoever takes its items ends it. */
export interface OpenedOutput {
  readonly items: AsyncGenerator<OutputItem, void, undefined>;
  readonly abort: AbortController;
}

/** `opened`: the first connection, if it is there already. */
export async function* followOutput(
  connection: Connection,
  of: ProcessCall,
  from: OutputFrom,
  opened?: OpenedOutput,
): AsyncGenerator<OutputItem, void, undefined> {
  const { signal } = from;
  let { cursor } = from;
  let next = opened;
  for (let failures = 0; ; ) {
    signal?.throwIfAborted();
    try {
      const { items, abort } = next ?? (await open(connection, of, { cursor, signal }));
      next = undefined;
      const onAbort = () => abort.abort(signal?.reason);
      signal?.addEventListener('abort', onAbort, { once: true });
      try {
        for await (const item of items) {
          failures = 0;
          cursor = item.cursor;
          yield item;
          if (item.kind === 'ended') return;
        }
      } finally {
        signal?.removeEventListener('abort', onAbort);
        abort.abort();
      }
      signal?.throwIfAborted();
    } catch (error) {
      signal?.throwIfAborted();
      if (!isPlatformError(error) || error.retry === 'never' || failures >= failuresMax) throw error;
    }
    const pauseMs = Math.min(reconnectMaxMs, reconnectFirstMs * 2 ** Math.min(failures++, 10));
    await connection.clock.wait(pauseMs * (0.5 + Math.random() / 2), signal);
  }
}

async function open(
  connection: Connection,
  of: ProcessCall,
  from: { readonly cursor: string | undefined; readonly signal: AbortSignal | undefined },
): Promise<OpenedOutput> {
  const abort = new AbortController();
  const signal = from.signal ? AbortSignal.any([from.signal, abort.signal]) : abort.signal;
  const headers = {
    Accept: outputFramesType,
    ...(from.cursor !== undefined && { 'Last-Event-ID': from.cursor }),
  };
  const response = await connection.open(routes.readProcessOutput, { ...of, signal, timeoutMs: null }, headers);
  return { items: itemsIn(readOutputFrames(response), of.params.process), abort };
}

/** Starts a process and keeps the stream of its output, whose first frame is the process. */
export async function startFollowed(
  connection: Connection,
  request: CallRequest<(typeof routes)['startProcess']>,
): Promise<{ readonly view: ProcessView; readonly opened: OpenedOutput }> {
  const attempt = async () => {
    const abort = new AbortController();
    // Until it has begun, the caller's signal ends it, and so does the time that any answer may take.
    const onAbort = () => abort.abort(request.signal?.reason);
    const late = setTimeout(() => abort.abort(lost('No answer came in time.')), connection.timeoutMs);
    request.signal?.addEventListener('abort', onAbort, { once: true });
    try {
      request.signal?.throwIfAborted();
      const call = { ...request, signal: abort.signal, timeoutMs: null };
      const response = await connection.open(routes.startProcess, call, { Accept: outputFramesType });
      const frames = readOutputFrames(response);
      const view = await firstOf(frames);
      return { view, opened: { items: itemsIn(frames, view.id), abort } };
    } catch (error) {
      abort.abort();
      request.signal?.throwIfAborted();
      throw error;
    } finally {
      clearTimeout(late);
      request.signal?.removeEventListener('abort', onAbort);
    }
  };
  return await connection.repeat(routes.startProcess, request, attempt);
}

async function firstOf(frames: AsyncGenerator<OutputFrame, void>): Promise<ProcessView> {
  try {
    const { done, value } = await frames.next();
    if (!done && value.kind === outputFrameKinds.process) return JSON.parse(textOf(value)) as ProcessView;
  } catch (error) {
    throw lost('The connection was lost before the answer.', error);
  }
  throw lost('The answer ended before it began.');
}

function lost(message: string, cause?: unknown): PlatformError {
  return new PlatformError('outcome_unknown', `${message} It may or may not have taken effect.`, { cause });
}

async function* itemsIn(
  frames: AsyncGenerator<OutputFrame, void>,
  processId: string,
): AsyncGenerator<OutputItem, void, undefined> {
  for await (const frame of frames) {
    switch (frame.kind) {
      case outputFrameKinds.stdout:
      case outputFrameKinds.stderr: {
        const stream = frame.kind === outputFrameKinds.stdout ? 'stdout' : 'stderr';
        yield { kind: 'output', stream, bytes: frame.payload, cursor: `${processId}.${frame.position}` };
        break;
      }
      case outputFrameKinds.item:
        yield JSON.parse(textOf(frame)) as Exclude<OutputItem, { kind: 'output' }>;
        break;
      case outputFrameKinds.error:
        throw errorIn(textOf(frame));
    }
  }
}

function textOf({ payload }: OutputFrame): string {
  return new TextDecoder().decode(payload);
}

function errorIn(data: string): PlatformError {
  const { error } = JSON.parse(data) as {
    error: { code: 'internal'; message: string; details?: Record<string, unknown>; requestId: string };
  };
  return new PlatformError(error.code, error.message, { details: error.details ?? {}, requestId: error.requestId });
}
