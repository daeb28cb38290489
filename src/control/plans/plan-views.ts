/** What callers see of plans. */
import { AtMost } from '../../base/index.ts';
import {
  isPlatformError,
  type PlanId,
  type PlanStatus,
  type PlanView,
  type QueryOf,
  type ResultOf,
  type routes,
} from '../../protocol/index.ts';
import type { PlanRecord, Readers } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { parseCursor, writeCursor } from '../cursors.ts';
import { lookHolds } from '../workspaces/sandbox-changes.ts';
import { getPlan, type Member, membersOf, workspacesOf } from './plan-records.ts';
import { collectedAtOnce, type PlanWork } from './plan-work.ts';

export class PlanViews {
  readonly #context: ControlContext;
  readonly #work: PlanWork;

  constructor(context: ControlContext, work: PlanWork) {
    this.#context = context;
    this.#work = work;
  }

  get(caller: Caller, plan: string): Promise<PlanView> {
    return this.#context.store.read(async (tables) => planViewOf(tables, await getPlan(tables, caller, plan)));
  }

  async list(caller: Caller, query: QueryOf<typeof routes.listPlans>): Promise<ResultOf<typeof routes.listPlans>> {
    const { state, cursor, limit } = query;
    const after = cursor === undefined ? undefined : parseCursor('plan', cursor);
    // A token of one sandbox has no plans.
    if (caller.sandboxId !== null) return { items: [], nextCursor: null };
    return await this.#context.store.read(async (tables) => {
      const filter = { teamId: caller.teamId, ...(state !== undefined && { states: [state] }) };
      const found = await tables.plans.list(filter, { limit: limit + 1, ...(after && { after }) });
      const shown = found.slice(0, limit);
      const items: PlanView[] = [];
      for (const plan of shown) items.push(await planViewOf(tables, plan));
      const last = shown.at(-1);
      return { items, nextCursor: found.length > limit && last !== undefined ? writeCursor(last) : null };
    });
  }

  /** What is not committed, read from the members as they are now. */
  async status(caller: Caller, plan: string, signal: AbortSignal): Promise<PlanStatus> {
    const { view, members, names } = await this.#context.store.read(async (tables) => {
      const record = await getPlan(tables, caller, plan);
      const members = await membersOf(tables, record.id);
      const names = await workspacesOf(tables, members);
      return { view: await planViewOf(tables, record), members, names };
    });
    const look = async (member: Member) => {
      const { sandboxId } = member;
      try {
        const changes = await this.#changesOf(caller, view.id, member, signal);
        const shown = changes.map(({ attachment: { workspaceId }, counts: { files, insertions, deletions } }) => ({
          ...{ workspaceId, workspace: names.get(workspaceId)?.name ?? workspaceId },
          ...{ files, insertions, deletions },
        }));
        return { sandboxId, changes: shown, error: null };
      } catch (error) {
        if (!isPlatformError(error)) throw error;
        return { sandboxId, changes: [], error: { code: error.code, message: error.message } };
      }
    };
    const few = new AtMost(collectedAtOnce);
    const looked = await Promise.all(members.map((member) => few.run(() => look(member))));
    const changed = looked.flatMap(({ changes }) => changes).filter(({ files }) => files > 0);
    const files = changed.reduce((total, one) => total + one.files, 0);
    return { plan: view, members: looked, files, commits: changed.length };
  }

  async #changesOf(caller: Caller, planId: PlanId, member: Member, signal: AbortSignal) {
    const { sandboxId, sandbox, attachments } = member;
    if (sandbox === undefined || attachments.length === 0) return [];
    const hold = `${lookHolds}${planId}/${sandboxId}`;
    try {
      const leaseToken = sandbox.leaseHeld ? sandbox.leaseToken : null;
      const request = { teamId: caller.teamId, sandboxId, leaseToken, createdBy: caller.keyId, hold };
      return await this.#work.changes.collect(request, signal);
    } finally {
      for (const { workspaceId } of attachments) await this.#release(workspaceId, hold);
    }
  }

  async #release(workspaceId: Parameters<PlanWork['changes']['release']>[0]['workspaceId'], hold: string) {
    try {
      await this.#work.changes.release({ workspaceId, hold });
    } catch (error) {
      this.#context.logger.warn('what a look at a plan has held could not be released', { workspaceId, hold, error });
    }
  }
}

export async function planViewOf(tables: Readers, plan: PlanRecord): Promise<PlanView> {
  const members = await membersOf(tables, plan.id);
  const workspaces = await workspacesOf(tables, members);
  const shown: PlanView['members'] = [];
  for (const { sandboxId, position, addedAtMs, addedBy, sandbox, attachments } of members) {
    const lease = sandbox?.leaseHeld
      ? await tables.leases.find({ teamId: plan.teamId, resource: sandboxId })
      : undefined;
    shown.push({
      ...{ sandboxId, position, addedBy, addedAt: new Date(addedAtMs).toISOString() },
      sandbox: sandbox
        ? { name: sandbox.name, state: sandbox.state.kind, leaseHolder: lease?.holder?.name ?? null }
        : null,
      attachments: attachments.map(({ workspaceId, path, baseNumber, baseCommit }) => ({
        ...{ workspaceId, workspace: workspaces.get(workspaceId)?.name ?? workspaceId, path },
        base: { number: baseNumber, commit: baseCommit },
      })),
    });
  }
  const { state } = plan;
  return {
    ...{ id: plan.id, name: plan.name, state, version: plan.version, members: shown, createdBy: plan.createdBy },
    commitId: state.kind === 'committed' || state.kind === 'reverted' ? state.commitId : null,
    createdAt: new Date(plan.createdAtMs).toISOString(),
    updatedAt: new Date(plan.updatedAtMs).toISOString(),
  };
}
