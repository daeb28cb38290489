/**
 * Requests to services inside sandboxes, over connections that init relays. A connection is kept for the next request to the same port of the
 * same life; where a repeat is harmless a request uses such a one, and is sent once more on a new one when the service had just closed it.
 */
import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { assert } from '../../base/index.ts';
import type { PreviewAdmission } from '../../control/index.ts';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import type { HeaderList } from './preview-headers.ts';

/** Without a byte in either direction before the answer begins. */
const answerLimitMs = 120_000;
/** And while it goes on: streams may be silent for long. */
const silenceLimitMs = 60 * 60_000;
const headMaxBytes = 32 * 1024;
/** Kept per port for the next request, and for how long. With all ports of a sandbox exposed they stay below its limit of connections. */
const keptMax = 24;
const keptMs = 15_000;

export interface InwardRequest {
  readonly admission: PreviewAdmission;
  readonly port: number;
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  /** What is sent behind the head; absent: nothing. */
  readonly body?: IncomingMessage;
  readonly isUpgrade: boolean;
}

export type InwardAnswer =
  | { readonly kind: 'answer'; readonly incoming: IncomingMessage; readonly outgoing: ClientRequest }
  | { readonly kind: 'upgraded'; readonly incoming: IncomingMessage; readonly socket: Duplex; readonly head: Buffer };

type Connect = (signal: AbortSignal) => Promise<Duplex>;

export class InwardRequests {
  readonly #kept = relayAgent({ keepAlive: true, maxFreeSockets: keptMax, timeout: keptMs, scheduling: 'lifo' });
  readonly #fresh = relayAgent({ keepAlive: false });

  /** `signal` ends it whenever it aborts, also while the answer goes on. */
  async send(request: InwardRequest, signal: AbortSignal): Promise<InwardAnswer> {
    const isRepeatable = request.body === undefined && !request.isUpgrade && isSafe(request.method);
    if (!isRepeatable) return await sendBy(this.#fresh, request, signal);
    try {
      return await sendBy(this.#kept, request, signal);
    } catch (error) {
      if (!(error instanceof ClosedMeanwhile) || signal.aborted) throw error;
      return await sendBy(this.#fresh, request, signal);
    }
  }

  close(): void {
    this.#kept.destroy();
    this.#fresh.destroy();
  }
}

/** A connection that was kept turned out to be closed: the service has seen nothing of the request. */
class ClosedMeanwhile extends PlatformError {}

function sendBy(agent: Agent, request: InwardRequest, signal: AbortSignal): Promise<InwardAnswer> {
  const answered = Promise.withResolvers<InwardAnswer>();
  const { life } = request.admission;
  const connect: Connect = async (aborted) => {
    const connection = await request.admission.open(aborted);
    assert(connection instanceof Duplex, 'A connection is a Duplex.');
    // Kept ones are in nobody's hands: one that the service closes must not stay half open there.
    if (!request.isUpgrade) connection.on('end', () => connection.end());
    return connection;
  };
  const outgoing = httpRequest({
    agent,
    // The name under which a connection is kept.
    ...{ host: `${life.sandboxId}.${life.generation}`, port: request.port },
    ...{ method: request.method, path: request.path, headers: request.headers },
    ...{ maxHeaderSize: headMaxBytes, timeout: answerLimitMs, insecureHTTPParser: false },
    ...{ connect: () => connect(signal) },
  });
  let isAnswered = false;
  const end = (reason: Error) => {
    isAnswered = true;
    answered.reject(reason);
    outgoing.destroy();
  };
  const onAbort = () => end(new DOMException('The visit is over.', 'AbortError'));
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  outgoing.once('close', () => {
    signal.removeEventListener('abort', onAbort);
    if (isAnswered) return;
    // A change of protocol that nobody asked for ends it without an error.
    answered.reject(
      new PlatformError('preview_failed', 'What the service in the sandbox answered is no answer to this.'),
    );
  });
  outgoing.once('timeout', () => end(tooLate()));
  outgoing.once('response', (incoming) => {
    isAnswered = true;
    outgoing.setTimeout(silenceLimitMs);
    answered.resolve({ kind: 'answer', incoming, outgoing });
  });
  if (request.isUpgrade) {
    outgoing.once('upgrade', (incoming, socket, head) =>
      answered.resolve({ kind: 'upgraded', incoming, socket, head }),
    );
  }
  outgoing.on('error', (error) => answered.reject(refusalOf(error, outgoing)));
  if (request.body === undefined) outgoing.end();
  else request.body.pipe(outgoing);
  return answered.promise;
}

function relayAgent(options: ConstructorParameters<typeof Agent>[0]): Agent {
  const agent = new Agent(options);
  agent.createConnection = ((
    { connect }: { readonly connect: () => Promise<Duplex> },
    done: (error: Error | null, connection?: Duplex) => void,
  ) => {
    connect().then(
      (connection) => done(null, connection),
      (error: Error) => done(error),
    );
  }) as unknown as Agent['createConnection'];
  return agent;
}

function refusalOf(error: NodeJS.ErrnoException, outgoing: ClientRequest): PlatformError {
  if (isPlatformError(error)) return error;
  const isCut = error.code === 'ECONNRESET' || error.code === 'EPIPE';
  if (isCut && outgoing.reusedSocket)
    return new ClosedMeanwhile('preview_failed', 'The service closed the connection.');
  const message = error.code?.startsWith('HPE_')
    ? 'What the service in the sandbox answered is not HTTP, or its headers are too large.'
    : 'The service in the sandbox broke off before it answered.';
  return new PlatformError('preview_failed', message, { cause: error });
}

function isSafe(method: string): boolean {
  return method === 'GET' || method === 'HEAD' || method === 'OPTIONS';
}

function tooLate(): PlatformError {
  const message = `The service in the sandbox did not answer within ${answerLimitMs / 1000} seconds.`;
  return new PlatformError('preview_timeout', message);
}
