/**
 * GET requests to registries: redirects under our rules, waits with an end, bodies as streams.
 *
 * Always true: a redirect goes from HTTPS to HTTPS, or stays with the host it came from; what `headersFor` gives for one origin is sent to
 * that origin only. Whoever is asked cannot make us wait longer than `idleTimeoutMs` for a next byte.
 */
import { isPlatformError, PlatformError } from '../../../protocol/index.ts';

export interface GetOptions {
  /** Asked anew for every hop, so that credentials stay where they belong. */
  readonly headersFor: (url: URL) => Readonly<Record<string, string>>;
  readonly signal: AbortSignal | undefined;
}

export interface GetAnswer {
  readonly status: number;
  readonly headers: Headers;
  body(): AsyncIterable<Buffer>;
  /** Lets go of a body that nobody reads. */
  discard(): void;
}

const redirectsMax = 5;
const idleTimeoutMs = 60_000;
const redirects: readonly number[] = [301, 302, 303, 307, 308];

export async function httpGet(start: URL, options: GetOptions): Promise<GetAnswer> {
  let url = start;
  for (let hops = 0; hops <= redirectsMax; hops += 1) {
    const answer = await getOnce(url, options);
    const location = answer.headers.get('location');
    if (!redirects.includes(answer.status) || location === null) return answer;
    answer.discard();
    url = redirected(url, location);
  }
  throw new PlatformError('registry_unavailable', `${start.host} redirects more than ${redirectsMax} times.`);
}

/** Where a redirect may lead. */
export function redirected(from: URL, location: string): URL {
  const to = URL.parse(location, from);
  const isAllowed =
    to !== null &&
    (to.protocol === 'https:'
      ? from.protocol === 'https:' || to.hostname === from.hostname
      : to.protocol === 'http:' && from.protocol === 'http:' && to.host === from.host);
  if (isAllowed && to.username === '' && to.password === '') return to;
  throw new PlatformError(
    'registry_denied',
    `${from.host} redirects to where it may not: ${to?.origin ?? 'no address'}.`,
  );
}

async function getOnce(url: URL, options: GetOptions): Promise<GetAnswer> {
  const stop = new AbortController();
  const idle = setTimeout(() => stop.abort(unavailable(url, 'nothing came for too long')), idleTimeoutMs);
  const signal = options.signal === undefined ? stop.signal : AbortSignal.any([options.signal, stop.signal]);
  const explain = (error: unknown) => {
    options.signal?.throwIfAborted();
    return isPlatformError(error) ? error : unavailable(url, causeOf(error), error);
  };
  // Bytes as they are stored: nothing on the way may unpack them.
  const headers = { 'accept-encoding': 'identity', ...options.headersFor(url) };
  const response = await fetch(url, { headers, redirect: 'manual', signal }).catch((error: unknown) => {
    clearTimeout(idle);
    throw explain(error);
  });
  const discard = () => {
    clearTimeout(idle);
    stop.abort();
  };
  async function* body(): AsyncGenerator<Buffer, void> {
    try {
      for await (const chunk of response.body ?? []) {
        idle.refresh();
        yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
      }
    } catch (error) {
      throw explain(error);
    } finally {
      discard();
    }
  }
  return { status: response.status, headers: response.headers, body, discard };
}

/** All of a small body. */
export async function readBody(answer: GetAnswer, options: { readonly limitBytes: number }): Promise<Buffer> {
  const parts: Buffer[] = [];
  let count = 0;
  for await (const part of answer.body()) {
    count += part.byteLength;
    if (count > options.limitBytes) {
      throw new PlatformError(
        'image_refused',
        `The registry sends a document of more than ${options.limitBytes} bytes.`,
      );
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}

export function unavailable(url: URL, why: string, cause?: unknown): PlatformError {
  return new PlatformError('registry_unavailable', `The registry at ${url.host} cannot be used: ${why}.`, { cause });
}

/** fetch says "fetch failed" and keeps the reason behind it. */
function causeOf(error: unknown): string {
  const { message, cause } = error as Error;
  const { code, message: reason } = (cause ?? {}) as { readonly code?: string; readonly message?: string };
  return code ?? (reason === undefined || reason === '' ? message : reason);
}
