/** The output of a process on our own stdout and stderr; with `--json` one object a line. */
import type { OutputItem, Process } from '../sdk/index.ts';
import type { CommandCall } from './command-call.ts';
import { exitCodes } from './exit-codes.ts';

type Exit = Extract<OutputItem, { kind: 'exited' }>['exit'];

/** To the end of the output; answers with how the leader ended, if that was in it. */
export async function printOutput(call: CommandCall, items: AsyncIterable<OutputItem>): Promise<Exit | undefined> {
  let exit: Exit | undefined;
  for await (const item of items) {
    if (item.kind === 'exited') exit = item.exit;
    if (call.isJson) await call.print(jsonOf(item), () => '');
    else if (item.kind === 'output') await call.io[item.stream].write(item.bytes);
    else if (item.kind === 'dropped')
      await call.note(`atoll: ${item.bytes} bytes of earlier output are no longer kept.`);
  }
  return exit;
}

/** What is there now, page by page. */
export async function* presentOutput(
  process: Process,
  from: { readonly cursor?: string; readonly signal?: AbortSignal } = {},
): AsyncGenerator<OutputItem> {
  for (let cursor = from.cursor; ; ) {
    const page = await process.readOutput({ ...from, ...(cursor !== undefined && { cursor }), encoding: 'base64' });
    for (const item of page.items) {
      if (item.kind === 'output') yield { ...item, bytes: Buffer.from(item.data, 'base64') };
      else yield item;
    }
    if (!page.hasMore) return;
    cursor = page.cursor;
  }
}

/** An interrupt ends the process, as it would here. */
export async function runInFront(call: CommandCall, process: Process): Promise<void> {
  const stopListening = call.io.onInterrupt(() => void process.kill({ signal: 'INT', graceMs: 5_000 }).catch(() => {}));
  try {
    const exit = await printOutput(call, process.output());
    call.exitCode = exit?.exitCode ?? exitCodes.outcomeUnknown;
  } finally {
    stopListening();
  }
}

/** In a word or two. */
export function endOfProcess(exit: Exit): string {
  const end = exit.signal ?? (exit.exitCode === null ? 'sandbox ended' : `exit ${exit.exitCode}`);
  const why = exit.timedOut ? ' (timeout)' : exit.outOfMemory ? ' (memory)' : '';
  return `${end}${why}`;
}

function jsonOf(item: OutputItem): unknown {
  if (item.kind !== 'output') return item;
  const { bytes, ...rest } = item;
  return { ...rest, data: Buffer.from(bytes).toString('base64'), encoding: 'base64' };
}
