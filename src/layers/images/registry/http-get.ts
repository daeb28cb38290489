/**
 * GET requests to registries: redirects under our rules, waits with an end, bodies as streams.
 *
 * Always true: a redirect goes from HTTPS to HTTPS, or stays with the host it came from, and every hop is judged by `rules` when it connects;
 * what `headersFor` gives for one origin is sent to that origin only. Whoever is asked cannot make us wait longer than `idleTimeoutMs` for a
 * next byte.
 */
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isPlatformError, PlatformError } from '../../../protocol/index.ts';
import { closedHostReason, hostOf, isClosedAddress, judgedLookup, type RemoteRules } from '../../remote-rules.ts';

export interface GetOptions {
  /** Asked anew for every hop, so that credentials stay where they belong. */
  readonly headersFor: (url: URL) => Readonly<Record<string, string>>;
  readonly rules: RemoteRules;
  readonly signal: AbortSignal | undefined;
}

export interface GetAnswer {
  readonly status: number;
  /** By its name in small letters; several of one name are joined by commas. */
  header(name: string): string | undefined;
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
    const location = answer.header('location');
    if (!redirects.includes(answer.status) || location === undefined) return answer;
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
  const response = await send(url, { headers, signal, rules: options.rules }).catch((error: unknown) => {
    clearTimeout(idle);
    throw explain(error);
  });
  const discard = () => {
    clearTimeout(idle);
    stop.abort();
  };
  async function* body(): AsyncGenerator<Buffer, void> {
    try {
      for await (const chunk of response as AsyncIterable<Buffer>) {
        idle.refresh();
        yield chunk;
      }
    } catch (error) {
      throw explain(error);
    } finally {
      discard();
    }
  }
  const header = (name: string) => [response.headers[name] ?? []].flat().join(', ') || undefined;
  return { status: response.statusCode ?? 0, header, body, discard };
}

/** A connection of its own, which no other request has opened under other rules. */
async function send(
  url: URL,
  { rules, ...options }: RequestOptions & { readonly rules: RemoteRules },
): Promise<IncomingMessage> {
  const refuse = (host: string) => new PlatformError('registry_denied', `${host} ${closedHostReason}`);
  if (isClosedAddress(hostOf(url), rules)) throw refuse(hostOf(url));
  const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return await new Promise((resolve, reject) => {
    const sent = request(url, { ...options, agent: false, lookup: judgedLookup(rules, refuse) });
    // Heard to the end: what fails behind the head of the answer is told by its body.
    sent.on('error', reject).once('response', resolve).end();
  });
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

function causeOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code ?? message;
}
