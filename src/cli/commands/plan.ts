/** Plans: sandboxes that are committed or rolled back together. */
import type { Command } from 'commander';
import { type Actions, type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { noteMore, type PageOptions, pageOf, withPages } from '../page-options.ts';
import { planTable, planText, statusText } from '../plan-words.ts';
import { printable } from '../readable.ts';
import { addPlanApply } from './plan-apply.ts';
import { addPlanCheckpoints } from './plan-checkpoints.ts';
import { addPlanCommits } from './plan-commits.ts';

export const addPlan: AddCommand = (program, actions) => {
  const plan = program.command('plan').description('sandboxes whose changes are committed together, or not at all');
  addCreate(plan, actions);
  addList(plan, actions);
  addShow(plan, actions);
  addMembers(plan, actions);
  addStatus(plan, actions);
  addPlanCommits(plan, actions);
  addPlanApply(plan, actions);
  addPlanCheckpoints(plan, actions);
  addRecover(plan, actions);
  addRemove(plan, actions);
};

function addCreate(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('create'))
    .description('make one and print its id')
    .argument('<name>', 'unique in the team')
    .argument('[sandbox...]', 'its members in the order of merging: ids or names')
    .action(
      actions.of<object, [name: string, sandboxes: string[]]>(async (call, name, sandboxes) => {
        const members: string[] = [];
        for (const sandbox of sandboxes) members.push(await call.sandboxId(sandbox));
        const made = await (await call.client()).plans.create(name, members, call.conditions());
        await call.print(made, () => `${made.id}\n`);
      }),
    );
}

function addList(plan: Command, actions: Actions): void {
  withPages(plan.command('ls', { isDefault: true }))
    .description('list them, newest first')
    .action(
      actions.of<PageOptions, []>(async (call) => {
        const page = await (await call.client()).plans.list(pageOf(call.options));
        await call.print(page, () => planTable(page.items, call.io.nowMs()));
        await noteMore(call, page);
      }),
    );
}

function addShow(plan: Command, actions: Actions): void {
  plan
    .command('show')
    .description('show one with its members')
    .argument('<plan>', 'id or name')
    .action(
      actions.of<object, [plan: string]>(async (call, name) => {
        const view = await (await call.client()).plans.get(name);
        await call.print(view, () => planText(view, call.io.nowMs()));
      }),
    );
}

function addMembers(plan: Command, actions: Actions): void {
  for (const verb of ['add', 'remove'] as const) {
    withIdempotencyKey(plan.command(verb))
      .description(verb === 'add' ? 'add sandboxes, last in order' : 'take sandboxes out; their files stay')
      .argument('<plan>', 'id or name')
      .argument('<sandbox...>', 'ids or names')
      .action(
        actions.of<object, [plan: string, sandboxes: string[]]>(async (call, name, sandboxes) => {
          const { plans } = await call.client();
          let view = await plans.get(name);
          for (const sandbox of sandboxes) {
            view = await plans[verb](view.id, await call.sandboxId(sandbox), call.conditions());
          }
          await call.print(view, () => planText(view, call.io.nowMs()));
        }),
      );
  }
}

function addStatus(plan: Command, actions: Actions): void {
  plan
    .command('status')
    .description('what its members have changed and not committed')
    .argument('<plan>', 'id or name')
    .action(
      actions.of<object, [plan: string]>(async (call, name) => {
        const status = await (await call.client()).plans.status(name);
        await call.print(status, () => `${status.plan.name} is ${status.plan.state.kind}.\n${statusText(status)}`);
      }),
    );
}

function addRecover(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('recover'))
    .description('settle what was interrupted, as the server does by itself')
    .action(
      actions.of<object, []>(async (call) => {
        const report = await (await call.client()).plans.recover(call.conditions());
        const lines = report.actions.map(({ kind, planId, outcome }) => `${planId} ${kind}: ${outcome}\n`);
        const waiting = report.waiting.flatMap(({ planId, failures }) => [
          `${planId} waits for ${failures.length} members\n`,
          ...failures.map(({ sandboxId, code, message }) => `  ${sandboxId}: ${printable(message)} (${code})\n`),
        ]);
        await call.print(report, () => [...lines, ...waiting].join('') || 'Nothing was left.\n');
      }),
    );
}

function addRemove(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('rm'))
    .description('delete some; their sandboxes and versions stay')
    .argument('<plan...>', 'ids or names')
    .option('--discard', 'also where members have changes that are in no version')
    .action(
      actions.of<{ readonly discard?: boolean }, [plans: string[]]>(async (call, names) => {
        const { plans } = await call.client();
        const discard = call.options.discard === true;
        for (const name of names) await plans.delete(name, { ...call.conditions(), discard });
        await call.print({ deleted: names }, () => '');
      }),
    );
}
