import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';

export const addReconcile: AddCommand = (program, actions) => {
  withIdempotencyKey(program.command('reconcile'))
    .description('settle differences between records and what the nodes report')
    .option('--dry-run', 'only tell what would be done')
    .action(
      actions.of<{ readonly dryRun?: boolean }, []>(async (call) => {
        const client = await call.client();
        const found = await client.reconcile({ ...call.conditions(), dryRun: call.options.dryRun === true });
        await call.print(found, () => {
          const lines = [
            ...found.actions.map(
              (action) => `${action.kind} ${action.sandboxId ?? '-'} on ${action.nodeId}: ${action.reason}`,
            ),
            ...found.quarantined.map((item) => `quarantined ${item.directory} on ${item.nodeId}: ${item.why}`),
            ...found.unreachable.map((nodeId) => `out of reach: ${nodeId}`),
          ];
          return lines.length === 0 ? 'Records and nodes agree.\n' : `${lines.join('\n')}\n`;
        });
      }),
    );
};
