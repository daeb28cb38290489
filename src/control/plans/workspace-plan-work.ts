/** The work of plans, on the workspaces and sandboxes that control has. */
import { type GitObjectId, newId, PlatformError, type WorkspaceId } from '../../protocol/index.ts';
import type { SandboxRecord } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import type { HiddenSandboxes } from '../hidden-sandboxes.ts';
import type { Attachments } from '../workspaces/attachments.ts';
import { placeCheckout } from '../workspaces/checkout-placement.ts';
import type { WorkspaceChanges } from '../workspaces/workspace-changes.ts';
import { callerOf } from './plan-checkpoints.ts';
import type { CheckOutcome, CheckRequest, DropRequest, PlanCheck, PlanWork } from './plan-work.ts';

/** What is read of a check's output, and the end of it that is kept. */
const outputReadBytes = 1024 * 1024;
const outputKeptLength = 16 * 1024;

interface PlanWorkParts {
  readonly changes: WorkspaceChanges;
  readonly attachments: Attachments;
  readonly hidden: HiddenSandboxes;
}

export class WorkspacePlanWork implements PlanWork {
  readonly changes: WorkspaceChanges;
  readonly #context: ControlContext;
  readonly #parts: PlanWorkParts;

  constructor(context: ControlContext, parts: PlanWorkParts) {
    this.changes = parts.changes;
    this.#context = context;
    this.#parts = parts;
  }

  async drop(request: DropRequest, signal: AbortSignal): Promise<void> {
    const { sandboxId, leaseToken } = request;
    const caller = callerOf(request);
    const attachments = await this.#context.store.read((tables) => tables.workspaces.attachmentsOf(sandboxId));
    for (const { workspaceId: workspace } of attachments) {
      signal.throwIfAborted();
      await this.#parts.attachments.drop({ caller, sandboxId, workspace, conditions: { leaseToken } });
    }
  }

  async treeOf({ workspaceId, commit }: { workspaceId: WorkspaceId; commit: GitObjectId }): Promise<GitObjectId> {
    const { store, nodes } = this.#context;
    const workspace = await store.read((tables) => tables.workspaces.find(workspaceId));
    if (workspace === undefined) {
      throw new PlatformError('workspace_not_found', `There is no workspace ${workspaceId}.`);
    }
    const found = await nodes.call(workspace.nodeId, (node) => node.workspaces.getCommit({ workspaceId, commit }));
    return found.tree;
  }

  async runChecks(request: CheckRequest, signal: AbortSignal): Promise<readonly CheckOutcome[]> {
    checkPaths(request);
    const { teamId, createdBy, like } = request;
    const source = { teamId, createdBy, nodeId: like.nodeId, spec: like.spec, fromCheckpoint: null };
    return await this.#parts.hidden.run(source, async (sandbox) => {
      await this.#place(request, sandbox);
      const outcomes: CheckOutcome[] = [];
      for (const check of request.checks) {
        signal.throwIfAborted();
        const outcome = await this.#runOne(request, check, sandbox, signal);
        outcomes.push(outcome);
        if (outcome.exitCode !== 0) break;
      }
      return outcomes;
    });
  }

  async #place({ targets }: CheckRequest, sandbox: SandboxRecord): Promise<void> {
    const life = { sandboxId: sandbox.id, generation: sandbox.generation };
    for (const { workspaceId, path, commit } of targets) {
      await this.#context.nodes.call(sandbox.nodeId, (node) =>
        placeCheckout({ node, life, leaseToken: null, workspaceId, path }, commit),
      );
    }
  }

  async #runOne(
    request: CheckRequest,
    check: PlanCheck,
    sandbox: SandboxRecord,
    signal: AbortSignal,
  ): Promise<CheckOutcome> {
    const { command, timeoutMs } = check;
    const order = {
      ...{ sandboxId: sandbox.id, generation: sandbox.generation, leaseToken: null, command, timeoutMs },
      runId: newId('operation', this.#context.random),
      cwd: check.cwd ?? request.targets[0]?.path ?? null,
      // A check that asks for a commit of the same plan tells by this that it would wait for itself.
      env: { ATOLL_PLAN_COMMIT: request.commitId },
      ...{ user: null, stdin: null, outputLimitBytes: outputReadBytes },
    };
    const { exitCode, timedOut, stdout, stderr, durationMs } = await this.#context.nodes.call(sandbox.nodeId, (node) =>
      node.exec(order, signal),
    );
    const output = Buffer.concat([stdout, stderr]).toString('utf8').slice(-outputKeptLength);
    return { command, exitCode: timedOut ? null : exitCode, timedOut, output, durationMs };
  }
}

/** In one sandbox the targets of all members need places of their own. */
function checkPaths({ targets }: CheckRequest): void {
  for (const { path } of targets) {
    const others = targets.filter((one) => one.path === path || one.path.startsWith(`${path}/`));
    if (others.length === 1) continue;
    const message = `Checks need a path of its own for each workspace; ${path} is the place of several.`;
    throw new PlatformError('invalid_request', message, { details: { path } });
  }
}
