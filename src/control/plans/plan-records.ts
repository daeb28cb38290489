/**
 * Reading and changing the record of a plan. Every change of its state is one event of the table, committed with whatever else belongs to it and
 * with its event in the stream, so that each transition is told exactly once.
 *
 * Whoever works on a plan brings the fence that it was given. A fence that is not the state's is refused in every step: a coordinator that was
 * replaced changes nothing any more.
 */
import {
  type Conditions,
  isId,
  type PlanId,
  type PlanState,
  PlatformError,
  type WorkspaceId,
} from '../../protocol/index.ts';
import type {
  AttachmentRecord,
  PlanMemberRecord,
  PlanRecord,
  Readers,
  SandboxRecord,
  Tables,
  WorkspaceRecord,
} from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { versionMismatch } from '../sandbox-records.ts';
import { nextPlanState, type PlanEvent } from './plan-lifecycle.ts';

/** One member as it is now. */
export interface Member extends PlanMemberRecord {
  /** Undefined: it is gone. */
  readonly sandbox: SandboxRecord | undefined;
  readonly attachments: readonly AttachmentRecord[];
}

export interface PlanChange {
  /** One that begins something is made with the fence it gets. */
  readonly event: PlanEvent | ((fence: number) => PlanEvent);
  /** Of whoever is at work; absent for those who begin. */
  readonly fence?: number;
  /** The name of what is told, and what it says. */
  readonly tell: { readonly kind: string; readonly data?: Readonly<Record<string, unknown>> };
}

export class PlanRecords {
  readonly #context: ControlContext;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** By id or name; of another team: it is not there. A token of one sandbox has no plans. */
  get(caller: Pick<Caller, 'teamId' | 'sandboxId'>, plan: string): Promise<PlanRecord> {
    return this.#context.store.read((tables) => getPlan(tables, caller, plan));
  }

  members(planId: PlanId): Promise<readonly Member[]> {
    return this.#context.store.read((tables) => membersOf(tables, planId));
  }

  /** The state after an event, with everything that belongs to it, in one transaction. */
  async change<Result>(
    planId: PlanId,
    change: PlanChange,
    also: (tables: Tables, plan: PlanRecord) => Promise<Result>,
  ): Promise<Result> {
    const result = await this.#context.store.transact(async (tables) => {
      const plan = await this.apply(tables, planId, change);
      return await also(tables, plan);
    });
    this.#context.events.notify();
    return result;
  }

  /** The same inside somebody's transaction; `notify` is theirs. */
  async apply(tables: Tables, planId: PlanId, change: PlanChange): Promise<PlanRecord> {
    const found = await tables.plans.find(planId);
    if (found === undefined) throw planNotFound(planId);
    checkFence(found, change.fence);
    const event = typeof change.event === 'function' ? change.event(found.fence + 1) : change.event;
    const state = nextPlanState(found.state, event);
    const fence = 'fence' in event ? event.fence : found.fence;
    const next = { ...found, state, fence, version: found.version + 1, updatedAtMs: this.#context.clock.nowMs() };
    if (!(await tables.plans.update(next)))
      throw new Error(`The record of ${planId} was changed inside a transaction.`);
    await tellOf(tables, next, change.tell);
    return next;
  }
}

export async function getPlan(
  tables: Readers,
  caller: Pick<Caller, 'teamId' | 'sandboxId'>,
  plan: string,
): Promise<PlanRecord> {
  const { teamId } = caller;
  const found = isId('plan', plan)
    ? await tables.plans.find(plan)
    : await tables.plans.findByName({ teamId, name: plan });
  if (found === undefined || found.teamId !== teamId || caller.sandboxId !== null) throw planNotFound(plan);
  return found;
}

export async function membersOf(tables: Readers, planId: PlanId): Promise<readonly Member[]> {
  const members: Member[] = [];
  for (const member of await tables.plans.members(planId)) {
    const sandbox = await tables.sandboxes.find(member.sandboxId);
    members.push({ ...member, sandbox, attachments: await tables.workspaces.attachmentsOf(member.sandboxId) });
  }
  return members;
}

/** The workspaces that these have attached, by id. */
export async function workspacesOf(
  tables: Readers,
  members: readonly Pick<Member, 'attachments'>[],
): Promise<ReadonlyMap<WorkspaceId, WorkspaceRecord>> {
  const ids = [...new Set(members.flatMap(({ attachments }) => attachments.map(({ workspaceId }) => workspaceId)))];
  const found = new Map<WorkspaceId, WorkspaceRecord>();
  for (const id of ids.sort()) {
    const workspace = await tables.workspaces.find(id);
    if (workspace !== undefined) found.set(id, workspace);
  }
  return found;
}

export async function tellOf(
  tables: Tables,
  plan: Pick<PlanRecord, 'id' | 'teamId' | 'name' | 'state' | 'version' | 'updatedAtMs'>,
  tell: PlanChange['tell'],
): Promise<void> {
  const { id: planId, teamId, name, version, updatedAtMs: atMs } = plan;
  const data = { planId, name, state: plan.state.kind, version, ...tell.data };
  await tables.events.append({ teamId, sandboxId: null, kind: tell.kind, atMs, data });
}

/** The number of whoever is at work. */
export function fenceOf(state: PlanState): number | undefined {
  return 'fence' in state ? state.fence : undefined;
}

function checkFence(plan: PlanRecord, fence: number | undefined): void {
  if (fence === undefined || fence === fenceOf(plan.state)) return;
  const details = { planId: plan.id, fence, current: plan.fence };
  throw new PlatformError('plan_commit_expired', `Somebody else has taken ${plan.id} over.`, { details });
}

/** Inside the transaction that began something: the version that its caller named is the one that it was begun on. */
export function checkBegunOn(begun: PlanRecord, conditions: Conditions): void {
  checkPlanVersion({ ...begun, version: begun.version - 1 }, conditions);
}

export function checkPlanVersion(plan: PlanRecord, conditions: Conditions): void {
  const { expectedVersion } = conditions;
  if (expectedVersion !== undefined && expectedVersion !== plan.version) throw versionMismatch(plan.version);
}

export function planNotFound(plan: string): PlatformError {
  return new PlatformError('plan_not_found', `There is no plan ${plan} in this team.`, { details: { plan } });
}

/** What a target is called among leases. */
export function targetResource(workspaceId: WorkspaceId): string {
  return `name:workspace/${workspaceId}`;
}
