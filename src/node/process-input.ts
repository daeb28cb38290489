/**
 * Writing to a process's standard input, exactly: every byte has an offset, init takes each once, and what it took is recorded before the
 * caller hears of it. A repeat with the same offset is harmless.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { InitRefusal, type InputOrder, inputLimitBytes, refusalCodes } from '../execution/index.ts';
import { isPlatformError, PlatformError, type WriteStdinOrder } from '../protocol/index.ts';
import type { ProcessEntry } from './process-entry.ts';
import type { ProcessTable } from './process-table.ts';

/** How long a process may leave its input unread before the caller hears of it. */
const takeMs = 30_000;

/** The caller holds the lock of the process. */
export async function writeInput(
  table: ProcessTable,
  entry: ProcessEntry,
  order: Pick<WriteStdinOrder, 'bytes' | 'offset' | 'close'>,
): Promise<{ readonly offset: number }> {
  const { stdinOffset } = entry.record;
  const offset = order.offset ?? stdinOffset;
  if (offset > stdinOffset) {
    const details = { path: 'offset', offset: stdinOffset };
    throw new PlatformError('invalid_request', `Only ${stdinOffset} bytes were written before.`, { details });
  }
  const bytes = order.bytes.subarray(Math.min(order.bytes.byteLength, stdinOffset - offset));
  const isRepeat = bytes.byteLength === 0 && order.bytes.byteLength > 0;
  if (!entry.record.stdinOpen) {
    if (isRepeat || (order.close && order.bytes.byteLength === 0)) return { offset: stdinOffset };
    throw closed();
  }
  for (let at = 0; at < bytes.byteLength; at += inputLimitBytes) {
    await send(table, entry, bytes.subarray(at, at + inputLimitBytes));
  }
  if (order.close) {
    // A process that had what it wanted may have ended meanwhile: its input is closed, which is what was asked for.
    await send(table, entry, new Uint8Array()).catch((error: unknown) => {
      if (!isPlatformError(error, 'stdin_closed')) throw error;
    });
    entry.record = { ...entry.record, stdinOpen: false };
    await table.save(entry);
  }
  return { offset: entry.record.stdinOffset };
}

async function send(table: ProcessTable, entry: ProcessEntry, bytes: Uint8Array): Promise<void> {
  const { processId, stdinOffset } = entry.record;
  await offerInput(table, { run: processId, offset: stdinOffset, bytes });
  entry.record = { ...entry.record, stdinOffset: stdinOffset + bytes.byteLength };
  await table.save(entry);
}

/** Answers when it is all taken. Calls that are made one after another arrive in that order. */
export async function offerInput(table: ProcessTable, input: InputOrder): Promise<void> {
  const over = new AbortController();
  const late = delay(takeMs, 'late' as const, { signal: over.signal }).catch(() => 'late' as const);
  try {
    const taken = table.feed.input(input);
    if ((await Promise.race([taken, late])) === 'late') {
      taken.catch(() => {});
      const details = { offset: input.offset };
      const message =
        'The process does not read its input. Repeat it from this offset; what it takes until then is not taken twice.';
      throw new PlatformError('outcome_unknown', message, { details });
    }
  } catch (error) {
    if (error instanceof InitRefusal && error.refusal.code === refusalCodes.noSuchRun) throw closed();
    if (error instanceof InitRefusal && error.refusal.code === refusalCodes.initLimit) {
      throw new PlatformError('limit_exceeded', 'The process does not read its input, and no more of it is held.');
    }
    throw error;
  } finally {
    over.abort();
  }
}

function closed(): PlatformError {
  return new PlatformError('stdin_closed', 'The standard input of the process is closed.');
}
