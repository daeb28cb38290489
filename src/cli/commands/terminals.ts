import { parseDuration } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { endOfProcess } from '../process-printing.ts';
import { readableTable, readableWhen } from '../readable.ts';

export const addTerminals: AddCommand = (program, actions) => {
  const terminals = program.command('terminals').description('terminals of a sandbox');

  terminals
    .command('ls')
    .description('list terminals: what runs first, and the newest first')
    .argument('<sandbox>', 'id or name')
    .option('-q, --quiet', 'ids only')
    .action(
      actions.of<{ readonly quiet?: boolean }, [sandbox: string]>(async (call, name) => {
        const items = await (await call.sandbox(name)).terminals.list();
        const nowMs = call.io.nowMs();
        await call.print({ items }, () => {
          if (call.options.quiet) return items.map((view) => `${view.id}\n`).join('');
          const rows = items.map((view) => [
            view.id,
            view.name ?? '-',
            String(view.pid),
            view.exit === null ? 'running' : endOfProcess(view.exit),
            `${view.columns}x${view.rows}`,
            readableWhen(view.startedAt, nowMs),
          ]);
          return readableTable(['ID', 'NAME', 'PID', 'STATE', 'SIZE', 'STARTED'], rows);
        });
      }),
    );

  withConditions(terminals.command('rm'))
    .description('end everything in a terminal and forget it')
    .argument('<sandbox>', 'id or name')
    .argument('<terminal>', 'id, or the handle it was opened with')
    .option('--grace <time>', 'between asking and ending, such as 5s', parseDuration)
    .action(
      actions.of<{ readonly grace?: number }, [sandbox: string, terminal: string]>(async (call, name, terminal) => {
        const { grace } = call.options;
        const sandbox = await call.sandbox(name);
        await sandbox.terminals.destroy(terminal, {
          ...call.conditions(),
          ...(grace !== undefined && { graceMs: grace }),
        });
        await call.print({ removed: terminal }, () => `${terminal}\n`);
      }),
    );
};
