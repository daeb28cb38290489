import type { ProcessView } from '../../protocol/index.ts';
import { parseCount } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import type { AddCommand } from '../command-adder.ts';
import { noteMore, pageOf } from '../page-options.ts';
import { endOfProcess } from '../process-printing.ts';
import { readableTable, readableWhen } from '../readable.ts';

interface Options {
  readonly quiet?: boolean;
  readonly limit?: number;
  readonly cursor?: string;
  readonly session?: string;
}

export const addPs: AddCommand = (program, actions) => {
  program
    .command('ps')
    .description('list processes of a sandbox: what runs first, and the newest first')
    .argument('[sandbox]', 'id or name; without it, that of this checkout')
    .option('-q, --quiet', 'ids only')
    .option('--limit <count>', 'of one page', parseCount)
    .option('--cursor <cursor>', 'the next page')
    .option('--session <id>', 'only those that were started from this session')
    .action(
      actions.of<Options, [sandbox?: string]>(async (call, name) => {
        const { quiet, session } = call.options;
        const page = await (await sandboxOrHere(call, name)).processes.list({
          ...pageOf(call.options),
          ...(session !== undefined && { sessionId: session }),
        });
        const views = page.items.map(({ view }) => view);
        const nowMs = call.io.nowMs();
        await call.print({ items: views, nextCursor: page.nextCursor }, () => {
          if (quiet) return views.map((view) => `${view.id}\n`).join('');
          const rows = views.map((view) => [
            view.id,
            view.name ?? '-',
            String(view.pid),
            stateOf(view),
            readableWhen(view.startedAt, nowMs),
            commandOf(view),
          ]);
          return readableTable(['ID', 'NAME', 'PID', 'STATE', 'STARTED', 'COMMAND'], rows);
        });
        await noteMore(call, page);
      }),
    );
};

function stateOf({ running, exit }: ProcessView): string {
  if (exit === null) return 'running';
  return `${running ? 'children run, ' : ''}${endOfProcess(exit)}`;
}

function commandOf({ command }: ProcessView): string {
  const text = typeof command === 'string' ? command : command.join(' ');
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
}
