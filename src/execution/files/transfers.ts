/** Streams of bytes out of and into a sandbox's files. */
import { constants } from 'node:os';
import {
  type FileContent,
  type FileEntry,
  PlatformError,
  type ReadFileOrder,
  type WriteFileOrder,
  type WrittenTree,
} from '../../protocol/index.ts';
import { resolveOwner } from './accounts.ts';
import { stat } from './actions.ts';
import { brokenProtocol, type FileContext, unavailable, unknownOutcome, wantOf } from './call.ts';
import { absolutePath, entryOf, parseEtag } from './entry.ts';
import { errorOfFault } from './fault.ts';
import { dataBytesMax, keep, requestFrames } from './wire.ts';
import { type FileWorker, type RequestAnswer, WorkerLost } from './worker.ts';
import type { Held } from './worker-pool.ts';
import { WorkerStream } from './worker-stream.ts';

const lookAttempts = 3;
/** For taking back an unfinished write; then the worker is ended. */
const cancelTimeoutMs = 10_000;

export async function readFile(
  context: FileContext,
  order: Pick<ReadFileOrder, 'path' | 'offset' | 'length'>,
  signal?: AbortSignal,
): Promise<FileContent> {
  const path = absolutePath(order.path);
  const offset = order.offset >= 0 ? order.offset : await offsetFromEnd(context, path, -order.offset);
  const frame = (request: number) => requestFrames.read(request, { path, offset, length: order.length });
  const { held, answer } = await openRead(context, { path, frame });
  if (answer.kind !== 'stat') {
    held.release();
    throw unavailable(brokenProtocol(answer));
  }
  const entry = entryOf(path, answer.stat, answer.linkTarget);
  const size = entry.sizeBytes;
  if (offset > 0 && offset >= size) {
    held.release();
    throw new PlatformError('range_not_satisfiable', `${path} has ${size} bytes.`, {
      details: { path, sizeBytes: size },
    });
  }
  // A size of 0 says nothing: files of procfs have it, and content.
  const length = size === 0 ? null : Math.min(order.length ?? size, size - offset);
  return { entry, offset, length, bytes: new WorkerStream({ held, path, length, signal }) };
}

export async function readTree(
  context: FileContext,
  given: string,
  signal?: AbortSignal,
): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }> {
  const path = absolutePath(given);
  const { held, answer } = await openRead(context, { path, frame: (request) => requestFrames.pack(request, path) });
  if (answer.kind !== 'data' && answer.kind !== 'done') {
    held.release();
    throw unavailable(brokenProtocol(answer));
  }
  const first = answer.kind === 'data' ? answer.bytes : undefined;
  return { bytes: new WorkerStream({ held, path, length: null, first, isEnded: answer.kind === 'done', signal }) };
}

export async function writeFile(
  context: FileContext,
  order: Omit<WriteFileOrder, 'sandboxId' | 'generation' | 'user' | 'leaseToken'>,
  bytes: AsyncIterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<FileEntry> {
  const path = absolutePath(order.path);
  if (/\/\.?$/.test(order.path)) throw errorOfFault({ code: 12, errno: constants.errno.EISDIR }, path);
  const { expected } = order;
  const expect = expected.kind === 'etag' ? parseEtag(expected.etag) : null;
  if (expect === undefined) throw errorOfFault({ code: 14, errno: 0 }, path);
  const owner = order.owner === null ? null : await resolveOwner(context, order.owner);
  const { answer } = await sendStream(context, {
    path,
    frame: (request) =>
      requestFrames.write(request, {
        path,
        append: order.how === 'append',
        parents: order.parents,
        refuseExisting: expected.kind === 'absent',
        expect,
        mode: order.mode ?? keep,
        owner,
      }),
    bytes,
    isAtomic: order.how === 'replace',
    signal,
  });
  if (answer.kind !== 'stat') throw unknownOutcome(brokenProtocol(answer));
  return entryOf(path, answer.stat, answer.linkTarget);
}

export async function writeTree(
  context: FileContext,
  given: string,
  tar: AsyncIterable<Uint8Array>,
  signal?: AbortSignal,
): Promise<WrittenTree> {
  const path = absolutePath(given);
  const frame = (request: number) => requestFrames.unpack(request, { path, create: true });
  const { answer, bytes } = await sendStream(context, { path, frame, bytes: tar, isAtomic: false, signal });
  if (answer.kind !== 'done') throw unknownOutcome(brokenProtocol(answer));
  return { bytes };
}

/** A request that is answered by a stream, up to its first frame; made again on another worker when one is lost before that. */
/** A worker that has begun to answer; whoever asked gives it back. */
export async function openRead(
  context: FileContext,
  request: { readonly path: string; readonly frame: (request: number) => Buffer },
): Promise<{ readonly held: Held; readonly answer: Exclude<RequestAnswer, { kind: 'fault' }> }> {
  for (let attempt = 1; ; attempt++) {
    const held = await context.workers.acquire(wantOf(context, { isChange: false, isTransfer: true }));
    try {
      held.worker.begin(request.frame);
      const answer = await held.worker.next();
      if (answer.kind !== 'fault') return { held, answer };
      held.release({ isUsable: true });
      throw errorOfFault(answer.fault, request.path);
    } catch (error) {
      held.release();
      if (!(error instanceof WorkerLost)) throw error;
      if (attempt >= lookAttempts) throw unavailable(error);
    }
  }
}

async function offsetFromEnd(context: FileContext, path: string, count: number): Promise<number> {
  const { sizeBytes, type } = await stat(context, path, { follow: true });
  if (type === 'file' && sizeBytes === 0) {
    throw new PlatformError('range_not_satisfiable', `${path} has 0 bytes.`, { details: { path, sizeBytes } });
  }
  return Math.max(0, sizeBytes - count);
}

interface StreamRequest {
  readonly path: string;
  readonly frame: (request: number) => Buffer;
  readonly bytes: AsyncIterable<Uint8Array>;
  /** Nothing is changed before everything was sent. */
  readonly isAtomic: boolean;
  readonly signal: AbortSignal | undefined;
}

async function sendStream(
  context: FileContext,
  request: StreamRequest,
): Promise<{ readonly answer: RequestAnswer; readonly bytes: number }> {
  const held = await context.workers.acquire(wantOf(context, { isChange: true, isTransfer: true }));
  const { worker } = held;
  let isComplete = false;
  let isUsable = false;
  try {
    const number = worker.begin(request.frame);
    const bytes = await sendData(worker, request).catch(async (error: unknown) => {
      isUsable = await cancelWrite(worker, number);
      throw error;
    });
    isComplete = !worker.hasAnswer;
    // Also after a fault: it tells the worker where the data ends.
    worker.send(requestFrames.done(number));
    const answer = await worker.next();
    isUsable = true;
    if (answer.kind === 'fault') throw errorOfFault(answer.fault, request.path);
    return { answer, bytes };
  } catch (error) {
    if (!(error instanceof WorkerLost)) throw error;
    throw request.isAtomic && !isComplete ? unavailable(error) : unknownOutcome(error);
  } finally {
    held.release({ isUsable });
  }
}

async function sendData(worker: FileWorker, request: StreamRequest): Promise<number> {
  const { signal } = request;
  signal?.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal?.reason);
  signal?.addEventListener('abort', onAbort, { once: true });
  const iterator = request.bytes[Symbol.asyncIterator]();
  try {
    return await Promise.race([passOn(worker, iterator, signal), aborted.promise]);
  } finally {
    signal?.removeEventListener('abort', onAbort);
    // Not waited for: bytes that never come would keep us.
    void Promise.resolve(iterator.return?.()).catch(() => {});
  }
}

/** Sends nothing more once the signal has aborted: the worker then serves somebody else. */
async function passOn(
  worker: FileWorker,
  iterator: AsyncIterator<Uint8Array>,
  signal: AbortSignal | undefined,
): Promise<number> {
  for (let bytes = 0; ; ) {
    const { done, value } = await iterator.next();
    if (done) return bytes;
    for (let at = 0; at < value.byteLength && !signal?.aborted; at += dataBytesMax) {
      worker.sendData(value.subarray(at, at + dataBytesMax));
      if (worker.isFull) await worker.room();
    }
    bytes += value.byteLength;
    // A fault: the rest is of no use.
    if (signal?.aborted || worker.hasAnswer) return bytes;
  }
}

/** Lets the worker take back what it has written so far. Whether it can be used again. */
async function cancelWrite(worker: FileWorker, number: number): Promise<boolean> {
  const patience = setTimeout(() => worker.close(), cancelTimeoutMs);
  try {
    worker.send(requestFrames.cancel(number));
    await worker.next();
    return true;
  } catch {
    return false;
  } finally {
    clearTimeout(patience);
  }
}
