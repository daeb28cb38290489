/**
 * How a request is made of a worker, and what its loss means. A look is made again on another worker, because it changed nothing; of a
 * change that may have reached a worker nobody knows.
 */
import { PlatformError } from '../../protocol/index.ts';
import { errorOfFault } from './fault.ts';
import { type RequestAnswer, WorkerLost } from './worker.ts';
import type { FileWorkers, Held, Want } from './worker-pool.ts';

const lookAttempts = 3;

export interface FileContext {
  readonly workers: FileWorkers;
  readonly user: string | null;
  readonly token: number;
}

export function wantOf(context: FileContext, kind: { isChange: boolean; isTransfer: boolean }): Want {
  return { user: context.user, token: context.token, ...kind };
}

/** One request that is answered by frames which `take` understands; it gets them until it returns a result. */
export interface SmallRequest<Result> {
  /** What a fault is about. */
  readonly path: string | ((errno: number) => string);
  readonly isChange: boolean;
  readonly frame: (request: number) => Buffer;
  readonly take: (answer: RequestAnswer) => { readonly result: Result } | undefined;
}

export async function callWorker<Result>(context: FileContext, request: SmallRequest<Result>): Promise<Result> {
  const want = wantOf(context, { isChange: request.isChange, isTransfer: false });
  for (let attempt = 1; ; attempt++) {
    const held = await context.workers.acquire(want);
    try {
      return await callHeld(held, request);
    } catch (error) {
      if (!(error instanceof WorkerLost)) throw error;
      if (request.isChange) throw unknownOutcome(error);
      if (attempt >= lookAttempts) throw unavailable(error);
    }
  }
}

/** The worker is given back; a fault is an answer, so it is usable after one. */
export async function callHeld<Result>(held: Held, request: SmallRequest<Result>): Promise<Result> {
  let isUsable = false;
  try {
    held.worker.begin(request.frame);
    for (;;) {
      const answer = await held.worker.next();
      if (answer.kind === 'fault') {
        isUsable = true;
        const { path } = request;
        throw errorOfFault(answer.fault, typeof path === 'string' ? path : path(answer.fault.errno));
      }
      const taken = request.take(answer);
      if (taken === undefined) continue;
      isUsable = true;
      return taken.result;
    }
  } finally {
    held.release({ isUsable });
  }
}

/** The worker sent what its request cannot be answered with. */
export function brokenProtocol(answer: RequestAnswer): Error {
  return new WorkerLost(`The file worker answered with "${answer.kind}".`);
}

export function unknownOutcome(cause: unknown): PlatformError {
  return new PlatformError('outcome_unknown', 'The file worker was lost midway: it may or may not have been done.', {
    cause,
  });
}

export function unavailable(cause: unknown): PlatformError {
  return new PlatformError('sandbox_unavailable', 'The file worker was lost; nothing was changed.', { cause });
}
