/** `atoll plan apply` and `applied`: the result of a committed plan in the repositories and directories of this machine. */
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { applyPlan, applyStatus, rememberedPlaces, rememberPlace, type TargetPlace } from '../../checkout/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { Atoll, PlanCommitView } from '../../sdk/index.ts';
import { appliedTable, applyText } from '../apply-words.ts';
import { collectText, parseDuration } from '../argument-parsers.ts';
import { applyOptions } from '../checkout-call.ts';
import { usage } from '../checkout-words.ts';
import type { Actions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { exitOfApply, withPlanExit } from '../plan-exit.ts';

interface Options {
  readonly target?: readonly string[];
  readonly dryRun?: boolean;
  readonly flip?: boolean;
  readonly wait?: number;
}

const targetHint = 'A target is workspace=path, or workspace=path#branch.';

type Published = PlanCommitView['targets'][number];

export function addPlanApply(plan: Command, actions: Actions): void {
  plan
    .command('apply')
    .description('bring what a plan committed into repositories and directories of this machine, all or nothing')
    .argument('<plan>', 'id or name; it is committed')
    .option('--target <workspace=path[#branch]>', 'where a workspace goes; remembered; repeatable', collectText)
    .option('--dry-run', 'only tell what would be done')
    .option('--flip', 'exchange directories without git whole: each is a symlink to one')
    .option('--wait <time>', 'for another apply on this machine, such as 1m', parseDuration)
    .action(actions.of<Options, [plan: string]>((call, name) => withPlanExit(call, () => apply(call, name))));
  plan
    .command('applied')
    .description('what was applied on this machine and can be undone; goes on with what was cut off')
    .action(
      actions.of<Options, []>(async (call) => {
        const items = await applyStatus(applyOptions(call));
        await call.print({ items }, () => appliedTable(items));
      }),
    );
}

async function apply(call: CommandCall<Options>, name: string): Promise<void> {
  const client = await call.client();
  const view = await client.plans.get(name);
  if (view.commitId === null) {
    throw new PlatformError(
      'plan_wrong_state',
      `The plan ${view.name} is ${view.state.kind}, and nothing is committed.`,
    );
  }
  const commit = await client.plans.getCommit(view.id, view.commitId);
  const published = commit.targets.filter(({ state }) => state === 'published');
  const options = applyOptions(call, call.options.wait);
  const places = await placesOf(call, published, await rememberedPlaces(options.stateDirectory));
  const targets = published.map((target, index) => ({ target: planTarget(client, target), place: places[index]! }));
  const { dryRun = false, flip = false } = call.options;
  const result = await applyPlan(
    { planId: view.id, planName: view.name, commitId: commit.id, targets },
    { ...options, dryRun, flip },
  );
  if (result.state === 'applied' && !dryRun) {
    for (const { workspaceId, path, branch } of result.targets) {
      await rememberPlace(options.stateDirectory, workspaceId, { path, ...(branch !== null && { branch }) });
    }
  }
  for (const warning of result.warnings) await call.note(`atoll: ${warning}`);
  await call.print(result, () => applyText(result));
  call.exitCode = exitOfApply(result);
}

function planTarget(client: Atoll, { workspaceId, workspace, before, after }: Published) {
  if (after === null) throw new PlatformError('plan_wrong_state', `${workspace} has no version of this plan.`);
  return {
    workspaceId,
    workspace,
    base: before.commit,
    commit: after.commit,
    openBundle: async function* (since: readonly string[]) {
      const known = since.includes(before.commit) ? { since: [before.number] } : {};
      yield* await client.workspaces.export(workspaceId, { kind: 'bundle', version: after.number, ...known });
    },
  };
}

/** As named, or as remembered; all that are missing are told at once. */
async function placesOf(
  call: CommandCall<Options>,
  published: readonly Published[],
  remembered: ReadonlyMap<string, TargetPlace>,
): Promise<TargetPlace[]> {
  const named = new Map((call.options.target ?? []).map((text) => parseTarget(call.io.cwd, text)));
  const unknown = [...named.keys()].filter((name) => !published.some((target) => isNamed(target, name)));
  if (unknown.length > 0) throw usage(`The plan committed nothing to ${unknown.join(', ')}.`, targetHint);
  const places = published.map(
    (target) => named.get(target.workspace) ?? named.get(target.workspaceId) ?? remembered.get(target.workspaceId),
  );
  const missing = published.filter((_, index) => places[index] === undefined);
  if (missing.length > 0) {
    const words = missing.map(({ workspace }) => `--target ${workspace}=PATH`).join(' ');
    throw usage(`Nobody knows where the result goes. Say it: ${words}`, targetHint);
  }
  return places as TargetPlace[];
}

function isNamed({ workspace, workspaceId }: Published, name: string): boolean {
  return name === workspace || name === workspaceId;
}

function parseTarget(cwd: string, text: string): readonly [string, TargetPlace] {
  const [, workspace, path, branch] = /^([^=]+)=([^#]+)(?:#(.+))?$/.exec(text) ?? [];
  if (workspace === undefined || path === undefined)
    throw usage(`"${text}" is no target: write workspace=path or workspace=path#branch.`, targetHint);
  return [workspace, { path: resolve(cwd, path), ...(branch !== undefined && { branch }) }];
}
