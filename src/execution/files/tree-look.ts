/** A whole tree as a worker sees it: every entry with all that the kernel says of it, and files by the bytes of their names. */
import { PlatformError } from '../../protocol/index.ts';
import { brokenProtocol, callWorker, type FileContext, unavailable } from './call.ts';
import { absolutePath, bytesBelow } from './entry.ts';
import { openRead } from './transfers.ts';
import { type FileStat, requestFrames } from './wire.ts';
import { WorkerStream } from './worker-stream.ts';

export interface SeenEntry {
  /** Below the tree's own path. */
  readonly path: Buffer;
  readonly stat: FileStat;
  /** Empty unless it is a symlink. */
  readonly linkTarget: Buffer;
}

/** Each directory before what is in it. Refuses more than `limit` entries. */
export async function listBelow(
  context: FileContext,
  given: string,
  limit: number,
  signal?: AbortSignal,
): Promise<SeenEntry[]> {
  const path = absolutePath(given);
  let entries: SeenEntry[] = [];
  return await callWorker<SeenEntry[]>(context, {
    path,
    isChange: false,
    frame: (request) => {
      entries = [];
      return requestFrames.list(request, { path, depth: 0, limit: limit + 1, after: new Uint8Array() });
    },
    take: (answer) => {
      signal?.throwIfAborted();
      if (answer.kind === 'done') return { result: entries };
      if (answer.kind !== 'entry') throw brokenProtocol(answer);
      if (entries.length >= limit) throw tooMany(limit);
      // A copy: what comes from a worker is part of a buffer that is much larger.
      entries.push({ ...answer, path: Buffer.from(answer.path), linkTarget: Buffer.from(answer.linkTarget) });
      return undefined;
    },
  });
}

export async function openBelow(
  context: FileContext,
  file: { readonly directory: string; readonly path: Uint8Array },
  signal?: AbortSignal,
): Promise<{ readonly stat: FileStat; readonly bytes: AsyncIterable<Uint8Array> }> {
  const path = bytesBelow(absolutePath(file.directory), Buffer.from(file.path));
  const shown = path.toString('utf8');
  const frame = (request: number) => requestFrames.read(request, { path, offset: 0, length: null });
  const { held, answer } = await openRead(context, { path: shown, frame });
  if (answer.kind !== 'stat') {
    held.release();
    throw unavailable(brokenProtocol(answer));
  }
  const { size } = answer.stat;
  const length = size === 0 ? null : size;
  return { stat: answer.stat, bytes: new WorkerStream({ held, path: shown, length, signal }) };
}

function tooMany(limit: number): PlatformError {
  return new PlatformError('limit_exceeded', `There are more than ${limit} files and directories.`, {
    details: { limit },
  });
}
