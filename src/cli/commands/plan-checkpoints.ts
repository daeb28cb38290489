/** `atoll plan checkpoint`, `checkpoints`, `restore` and `rm-checkpoint`. */
import type { Command } from 'commander';
import { parseDuration } from '../argument-parsers.ts';
import { type Actions, withIdempotencyKey } from '../command-adder.ts';
import { exitOfPlan, withPlanExit } from '../plan-exit.ts';
import { checkpointTable, planText } from '../plan-words.ts';

export function addPlanCheckpoints(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('checkpoint'))
    .description('keep the files of every member as of one moment, and print the id')
    .argument('<plan>', 'id or name')
    .argument('[name]', 'for people; need not be unique')
    .option('--wait <time>', 'for leases that others hold, such as 1m', parseDuration)
    .action(
      actions.of<{ readonly wait?: number }, [plan: string, name?: string]>(async (call, plan, name) => {
        await withPlanExit(call, async () => {
          const { wait } = call.options;
          const made = await (await call.client()).plans.checkpoint(plan, {
            ...call.conditions(),
            ...(name !== undefined && { name }),
            ...(wait !== undefined && { waitMs: wait }),
          });
          await call.print(made, () => `${made.id}\n`);
        });
      }),
    );
  plan
    .command('checkpoints')
    .description('list its checkpoints, newest first')
    .argument('<plan>', 'id or name')
    .action(
      actions.of<object, [plan: string]>(async (call, name) => {
        const items = await (await call.client()).plans.checkpoints(name);
        await call.print({ items }, () => checkpointTable(items, call.io.nowMs()));
      }),
    );
  withIdempotencyKey(plan.command('restore'))
    .description('put the files of a checkpoint of the plan into every member')
    .argument('<plan>', 'id or name')
    .argument('<checkpoint>', 'id')
    .option('--wait <time>', 'for leases that others hold, such as 1m', parseDuration)
    .action(
      actions.of<{ readonly wait?: number }, [plan: string, checkpoint: string]>(async (call, name, checkpoint) => {
        await withPlanExit(call, async () => {
          const { wait } = call.options;
          const options = { ...call.conditions(), ...(wait !== undefined && { waitMs: wait }) };
          const view = await (await call.client()).plans.restore(name, checkpoint, options);
          await call.print(view, () => planText(view, call.io.nowMs()));
          call.exitCode = exitOfPlan(view);
        });
      }),
    );
  withIdempotencyKey(plan.command('rm-checkpoint'))
    .description('delete checkpoints of a plan')
    .argument('<plan>', 'id or name')
    .argument('<checkpoint...>', 'ids')
    .action(
      actions.of<object, [plan: string, checkpoints: string[]]>(async (call, name, ids) => {
        const { plans } = await call.client();
        for (const id of ids) await plans.deleteCheckpoint(name, id, call.conditions());
        await call.print({ deleted: ids }, () => '');
      }),
    );
}
