/**
 * Changes below a path, as they happen. The two halves of a move come one after the other when both are below the path; a half that stays alone is a
 * deletion or a creation. A reader who is too slow makes the kernel drop events, which is told as `overflow`.
 */
import type { FileEvent } from '../../protocol/index.ts';
import { brokenProtocol, type FileContext, unavailable } from './call.ts';
import { absolutePath } from './entry.ts';
import { errorOfFault } from './fault.ts';
import { requestFrames } from './wire.ts';
import { type FileWorker, type RequestAnswer, WorkerLost } from './worker.ts';

/** How long the second half of a move may take; the kernel queues both at once. */
const halfMoveMs = 100;

type Change = Extract<RequestAnswer, { kind: 'change' }>;

export async function* watchFiles(
  context: FileContext,
  order: { readonly path: string; readonly recursive: boolean },
  signal: AbortSignal,
): AsyncGenerator<FileEvent, void> {
  const path = absolutePath(order.path);
  signal.throwIfAborted();
  const worker = await context.workers.openWatch(context);
  const onAbort = () => worker.close();
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    worker.begin((request) => requestFrames.watch(request, { path, recursive: order.recursive }));
    const first = await worker.next();
    if (first.kind === 'fault') throw errorOfFault(first.fault, path);
    if (first.kind !== 'done') throw brokenProtocol(first);
    worker.waitLong();
    yield { kind: 'armed' };
    yield* joinMoves(changesOf(worker));
  } catch (error) {
    if (signal.aborted) return;
    throw error instanceof WorkerLost ? unavailable(error) : error;
  } finally {
    signal.removeEventListener('abort', onAbort);
    worker.close();
  }
}

async function* changesOf(worker: FileWorker): AsyncGenerator<Change, void> {
  for (;;) {
    const answer = await worker.next();
    if (answer.kind !== 'change') throw brokenProtocol(answer);
    yield answer;
  }
}

/** Exported for its test. */
export async function* joinMoves(
  changes: AsyncIterator<Pick<Change, 'what' | 'cookie' | 'path'>>,
): AsyncGenerator<FileEvent, void> {
  let half: { readonly path: string; readonly cookie: number } | undefined;
  let coming = changes.next();
  for (;;) {
    const item = half === undefined ? await coming : await within(coming, halfMoveMs);
    if (item === undefined || item.done) {
      if (half !== undefined) yield { kind: 'deleted', path: half.path };
      half = undefined;
      if (item?.done) return;
      continue;
    }
    coming = changes.next();
    coming.catch(() => {}); // Looked at in the next round.
    const { what, cookie, path } = item.value;
    const from = half;
    half = undefined;
    if (what === 'moved to' && from !== undefined && from.cookie === cookie) {
      yield { kind: 'moved', path, from: from.path };
      continue;
    }
    if (from !== undefined) yield { kind: 'deleted', path: from.path };
    if (what === 'moved from') half = { path, cookie };
    else yield eventOf(what, path);
  }
}

function eventOf(what: Exclude<Change['what'], 'moved from'>, path: string): FileEvent {
  if (what === 'overflow') return { kind: 'overflow' };
  const kind = what === 'removed' ? 'deleted' : what === 'moved to' ? 'created' : what;
  return { kind, path };
}

async function within<Value>(promise: Promise<Value>, ms: number): Promise<Value | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(() => late.resolve(undefined), ms);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
