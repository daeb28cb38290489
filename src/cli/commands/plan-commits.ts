/** `atoll plan commit`, `revert` and `rollback`. */
import type { Command } from 'commander';
import { collectText, parseDuration } from '../argument-parsers.ts';
import { CliError } from '../cli-error.ts';
import { type Actions, withIdempotencyKey } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';
import { exitOfCommit, exitOfPlan, withPlanExit } from '../plan-exit.ts';
import { commitText, planText } from '../plan-words.ts';

interface CommitOptions {
  readonly commitId?: string;
  readonly bestEffort?: boolean;
  readonly message?: string;
  readonly author?: string;
  readonly check?: readonly string[];
  readonly checkTimeout?: number;
  readonly dryRun?: boolean;
  readonly allowEmpty?: boolean;
  readonly wait?: number;
}

export function addPlanCommits(plan: Command, actions: Actions): void {
  addCommit(plan, actions);
  addRevert(plan, actions);
  addRollback(plan, actions);
}

function addCommit(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('commit'))
    .description('publish the changes of every member to their workspaces, all or nothing')
    .argument('<plan>', 'id or name')
    .option('-m, --message <text>', 'of the commits')
    .option('--author <author>', 'such as "A Name <address>"')
    .option('--check <command>', 'must succeed on the merged result; repeatable', collectText)
    .option('--check-timeout <time>', 'of each check, such as 5m', parseDuration)
    .option('--dry-run', 'everything but the publishing')
    .option('--allow-empty', 'also where nobody changed anything')
    .option('--best-effort', 'publish what can be published, target by target')
    .option('--commit-id <id>', 'to be able to ask again for the same commit')
    .option('--wait <time>', 'for leases that others hold, such as 1m', parseDuration)
    .action(
      actions.of<CommitOptions, [plan: string]>(async (call, name) => {
        await withPlanExit(call, async () => {
          const commit = await (await call.client()).plans.commit(name, {
            ...call.conditions(),
            ...bodyOf(call.options),
            // Inside a check of a commit, the server must not wait for that commit.
            ...(call.io.env['ATOLL_PLAN_COMMIT'] !== undefined && { withinCommitId: call.io.env['ATOLL_PLAN_COMMIT'] }),
          });
          await call.print(commit, () => commitText(commit));
          call.exitCode = exitOfCommit(commit);
        });
      }),
    );
}

function bodyOf(options: CommitOptions) {
  const { commitId, message, wait, check = [], checkTimeout } = options;
  return {
    ...(commitId !== undefined && { commitId }),
    ...(options.bestEffort === true && { mode: 'bestEffort' as const }),
    ...(message !== undefined && { message }),
    ...(options.author !== undefined && { author: authorOf(options.author) }),
    checks: check.map((command) => ({ command, ...(checkTimeout !== undefined && { timeoutMs: checkTimeout }) })),
    dryRun: options.dryRun === true,
    allowEmpty: options.allowEmpty === true,
    ...(wait !== undefined && { waitMs: wait }),
  };
}

function authorOf(text: string): { name: string; email: string } {
  const { name, email } = /^(?<name>[^<>]+?)\s*<(?<email>[^<>\s]+)>$/.exec(text)?.groups ?? {};
  if (name !== undefined && email !== undefined) return { name, email };
  const hint = 'Write it as git does: "A Name <address>".';
  throw new CliError(`"${text}" is not an author.`, { exitCode: exitCodes.usage, code: 'usage', hint });
}

function addRevert(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('revert'))
    .description('take a committed plan back with a new version of every target')
    .argument('<plan>', 'id or name')
    .option('-m, --message <text>', 'of the commits')
    .option('--wait <time>', 'for leases that others hold, such as 1m', parseDuration)
    .action(
      actions.of<{ readonly message?: string; readonly wait?: number }, [plan: string]>(async (call, name) => {
        await withPlanExit(call, async () => {
          const { message, wait } = call.options;
          const commit = await (await call.client()).plans.revert(name, {
            ...call.conditions(),
            ...(message !== undefined && { message }),
            ...(wait !== undefined && { waitMs: wait }),
          });
          await call.print(commit, () => commitText(commit));
          call.exitCode = exitOfCommit(commit);
        });
      }),
    );
}

function addRollback(plan: Command, actions: Actions): void {
  withIdempotencyKey(plan.command('rollback'))
    .description("put every member's checkouts back to what they stand on, and end the plan")
    .argument('<plan>', 'id or name')
    .option('--wait <time>', 'for leases that others hold, such as 1m', parseDuration)
    .action(
      actions.of<{ readonly wait?: number }, [plan: string]>(async (call, name) => {
        await withPlanExit(call, async () => {
          const { wait } = call.options;
          const options = { ...call.conditions(), ...(wait !== undefined && { waitMs: wait }) };
          const view = await (await call.client()).plans.rollBack(name, options);
          await call.print(view, () => planText(view, call.io.nowMs()));
          call.exitCode = exitOfPlan(view);
        });
      }),
    );
}
