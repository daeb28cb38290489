/** A watch on files: an open connection and the events that come over it. */
import { type FileEventView, isErrorCode, PlatformError, routes } from '../protocol/index.ts';
import type { SandboxBinding } from './processes.ts';
import { readServerEvents, type ServerEvent } from './server-events.ts';

export interface WatchOptions {
  readonly user?: string;
  readonly signal?: AbortSignal;
  /** What is below directories below it, too. */
  readonly recursive?: boolean;
  /** Globs on paths below the watched one; one without a slash is about names at any depth. */
  readonly include?: readonly string[];
  readonly exclude?: readonly string[];
}

/** `overflow`: events were lost, look again at everything. */
export type FileChange =
  | { readonly kind: 'created' | 'modified' | 'deleted'; readonly path: string }
  | { readonly kind: 'moved'; readonly path: string; readonly from: string }
  | { readonly kind: 'overflow' };

/** Longer than three heartbeats of the server: the connection is dead. */
const silenceMs = 50_000;

export class FileWatch implements AsyncIterable<FileChange>, AsyncDisposable {
  readonly #events: AsyncGenerator<ServerEvent, void, undefined>;
  readonly #stop: AbortController;
  readonly #signal: AbortSignal | undefined;

  constructor(
    events: AsyncGenerator<ServerEvent, void, undefined>,
    options: { readonly stop: AbortController; readonly signal: AbortSignal | undefined },
  ) {
    this.#events = events;
    this.#stop = options.stop;
    this.#signal = options.signal;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FileChange, void, undefined> {
    try {
      for await (const message of this.#events) {
        const event = eventIn(message);
        if (event !== undefined && event.kind !== 'armed') yield event as FileChange;
      }
    } catch (error) {
      if (!this.#stop.signal.aborted && !this.#signal?.aborted) throw error;
    } finally {
      this.close();
    }
  }

  /** Ends it here and in the sandbox. */
  close(): void {
    this.#stop.abort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }
}

export async function openWatch(
  binding: SandboxBinding,
  path: string,
  options: WatchOptions & { readonly session?: string },
): Promise<FileWatch> {
  const { user, session, signal, recursive, include, exclude } = options;
  const stop = new AbortController();
  const both = signal === undefined ? stop.signal : AbortSignal.any([signal, stop.signal]);
  const response = await binding.connection.open(
    routes.watchFiles,
    {
      params: { sandboxId: binding.sandboxId },
      ...binding.bound({ signal: both }),
      query: {
        path,
        ...(user !== undefined && { user }),
        ...(session !== undefined && { session }),
        ...(recursive && { recursive: 'true' }),
        ...(include && { include: [...include] }),
        ...(exclude && { exclude: [...exclude] }),
      },
      timeoutMs: null,
    },
    { Accept: 'text/event-stream' },
  );
  const events = readServerEvents(response, { silenceMs });
  try {
    const first = await events.next();
    const event = first.done ? undefined : eventIn(first.value);
    if (event?.kind !== 'armed') throw new PlatformError('server_unreachable', 'The watch ended before it was armed.');
    return new FileWatch(events, { stop, signal });
  } catch (error) {
    stop.abort();
    throw error;
  }
}

function eventIn(message: ServerEvent): FileEventView | undefined {
  if (message.event === 'error') {
    const { error } = JSON.parse(message.data) as { error: { code: string; message: string; details: object } };
    throw new PlatformError(isErrorCode(error.code) ? error.code : 'internal', error.message, {
      details: { ...error.details },
    });
  }
  return message.data === '' ? undefined : (JSON.parse(message.data) as FileEventView);
}
