/**
 * The output of one process, in order, as long as it lives. A connection that breaks is opened again behind the last item that was
 * handed out, so that nothing is missed and nothing comes twice.
 */
import { isPlatformError, PlatformError, type ProcessOutputItem, routes } from '../protocol/index.ts';
import { decodeBase64 } from './base64.ts';
import type { CallOptions, Connection } from './connection.ts';
import { readServerEvents } from './server-events.ts';

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

/** Longer than three heartbeats of the server: the connection is dead. */
const silenceMs = 50_000;
const reconnectFirstMs = 100;
const reconnectMaxMs = 5_000;
/** How often in a row it is tried in vain. */
const failuresMax = 60;

export async function* followOutput(
  connection: Connection,
  of: ProcessCall,
  from: OutputFrom,
): AsyncGenerator<OutputItem, void, undefined> {
  const { signal } = from;
  let { cursor } = from;
  for (let failures = 0; ; ) {
    signal?.throwIfAborted();
    try {
      for await (const item of open(connection, of, { cursor, signal })) {
        failures = 0;
        cursor = item.cursor;
        yield item;
        if (item.kind === 'ended') return;
      }
    } catch (error) {
      signal?.throwIfAborted();
      if (!isPlatformError(error) || error.retry === 'never' || failures >= failuresMax) throw error;
    }
    const pauseMs = Math.min(reconnectMaxMs, reconnectFirstMs * 2 ** Math.min(failures++, 10));
    await connection.clock.wait(pauseMs * (0.5 + Math.random() / 2), signal);
  }
}

async function* open(
  connection: Connection,
  of: ProcessCall,
  from: { readonly cursor: string | undefined; readonly signal: AbortSignal | undefined },
): AsyncGenerator<OutputItem, void, undefined> {
  const broken = new AbortController();
  const signal = from.signal ? AbortSignal.any([from.signal, broken.signal]) : broken.signal;
  const headers = {
    Accept: 'text/event-stream',
    ...(from.cursor !== undefined && { 'Last-Event-ID': from.cursor }),
  };
  const request = { ...of, query: { encoding: 'base64' as const }, signal, timeoutMs: null };
  const response = await connection.open(routes.readProcessOutput, request, headers);
  try {
    for await (const message of readServerEvents(response, { silenceMs })) {
      if (message.event === 'error') throw errorIn(message.data);
      if (message.data !== '') yield itemOf(JSON.parse(message.data) as ProcessOutputItem);
    }
  } finally {
    broken.abort();
  }
}

function itemOf(item: ProcessOutputItem): OutputItem {
  if (item.kind !== 'output') return item;
  const { data, encoding, stream, cursor } = item;
  const bytes = encoding === 'base64' ? decodeBase64(data) : new TextEncoder().encode(data);
  return { kind: 'output', stream, bytes, cursor };
}

function errorIn(data: string): PlatformError {
  const { error } = JSON.parse(data) as {
    error: { code: 'internal'; message: string; details?: Record<string, unknown>; requestId: string };
  };
  return new PlatformError(error.code, error.message, { details: error.details ?? {}, requestId: error.requestId });
}
