import type { EventView } from '../../protocol/index.ts';
import { parseCount } from '../argument-parsers.ts';
import type { AddCommand } from '../command-adder.ts';

interface Options {
  readonly follow?: boolean;
  readonly after?: number;
  readonly limit?: number;
}

/** One event per line. With `--json` each line is one JSON object, so that a stream can be read as it grows. */
export const addEvents: AddCommand = (program, actions) => {
  program
    .command('events')
    .description('show what happened, in order')
    .argument('[sandbox]', 'only of this one, by id or name')
    .option('-f, --follow', 'go on with what happens from now on')
    .option('--after <sequence>', 'only what came after this event', parseCount)
    .option('--limit <count>', 'without --follow: how many at most', parseCount)
    .action(
      actions.of<Options, [sandbox?: string]>(async (call, name) => {
        const { follow, after, limit } = call.options;
        const { events } = await call.client();
        const from = {
          ...(after !== undefined && { after }),
          ...(name !== undefined && { sandboxId: await call.sandboxId(name) }),
        };
        const print = (event: EventView) => call.print(event, () => lineOf(event));
        if (!follow) {
          const { items } = await events.list({ ...from, ...(limit !== undefined && { limit }) });
          for (const event of items) await print(event);
          return;
        }
        const interrupted = new AbortController();
        const stopListening = call.io.onInterrupt(() => interrupted.abort());
        try {
          for await (const event of events.follow({ ...from, signal: interrupted.signal })) await print(event);
        } finally {
          stopListening();
        }
      }),
    );
};

function lineOf(event: EventView): string {
  return `${event.sequence} ${event.at} ${event.kind} ${event.sandboxId ?? '-'} ${JSON.stringify(event.data)}\n`;
}
