/** Plans: sandboxes whose changes are committed to their workspaces together, or not at all. Each is named by its id or its name. */
import {
  type AnyRoute,
  type BodyInputOf,
  type PlanCheckpointView,
  type PlanCommitView,
  type PlanStatus,
  type PlanView,
  type QueryInputOf,
  type ResultOf,
  routes,
} from '../protocol/index.ts';
import type { CallOptions, CallRequest, Connection } from './connection.ts';
import { newIdempotencyKey } from './idempotency-key.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
export type PlanPage = ResultOf<Routes['listPlans']>;
export type PlanRecovery = ResultOf<Routes['recoverPlans']>;
export type CommitPlanOptions = BodyInputOf<Routes['commitPlan']>;
export type RevertPlanOptions = BodyInputOf<Routes['revertPlan']>;
export type RollBackPlanOptions = BodyInputOf<Routes['rollBackPlan']>;
export type PlanCheckpointOptions = BodyInputOf<Routes['createPlanCheckpoint']>;

export class Plans {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  create(name: string, members: readonly string[] = [], options: CallOptions = {}): Promise<PlanView> {
    return this.#change(routes.createPlan, { body: { name, members: [...members] } }, options);
  }

  /** One page, newest first. */
  list(options: QueryInputOf<Routes['listPlans']> & Look = {}): Promise<PlanPage> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listPlans, { query, ...(signal && { signal }) });
  }

  get(plan: string, options: Look = {}): Promise<PlanView> {
    return this.#connection.call(routes.getPlan, { params: { plan }, ...options });
  }

  /** What its members have changed and not committed. */
  status(plan: string, options: Look = {}): Promise<PlanStatus> {
    return this.#connection.call(routes.getPlanStatus, { params: { plan }, ...options, timeoutMs: null });
  }

  add(plan: string, sandboxId: string, options: CallOptions = {}): Promise<PlanView> {
    return this.#change(routes.addPlanMember, { params: { plan, sandboxId } }, options);
  }

  remove(plan: string, sandboxId: string, options: CallOptions = {}): Promise<PlanView> {
    return this.#change(routes.removePlanMember, { params: { plan, sandboxId } }, options);
  }

  /** All or nothing; what came of it is the answer, conflicts and aborts too. Repeats are harmless: it has a key of its own. */
  commit(plan: string, options: CommitPlanOptions & CallOptions = {}): Promise<PlanCommitView> {
    const { call, body } = split(options);
    return this.#change(routes.commitPlan, { params: { plan }, body }, call);
  }

  getCommit(plan: string, commitId: string, options: Look = {}): Promise<PlanCommitView> {
    return this.#connection.call(routes.getPlanCommit, { params: { plan, commitId }, ...options });
  }

  /** Newest first. */
  async commits(plan: string, options: Look = {}): Promise<PlanCommitView[]> {
    return (await this.#connection.call(routes.listPlanCommits, { params: { plan }, ...options })).items;
  }

  /** Takes a committed plan back with a new version of every target. */
  revert(plan: string, options: RevertPlanOptions & CallOptions = {}): Promise<PlanCommitView> {
    const { call, body } = split(options);
    return this.#change(routes.revertPlan, { params: { plan }, body }, call);
  }

  /** Puts every member's checkouts back to what they stand on; what could not be is in the state of the answer. */
  rollBack(plan: string, options: RollBackPlanOptions & CallOptions = {}): Promise<PlanView> {
    const { call, body } = split(options);
    return this.#change(routes.rollBackPlan, { params: { plan }, body }, call);
  }

  /** Keeps the files of every member as of one moment. */
  checkpoint(plan: string, options: PlanCheckpointOptions & CallOptions = {}): Promise<PlanCheckpointView> {
    const { call, body } = split(options);
    return this.#change(routes.createPlanCheckpoint, { params: { plan }, body }, call);
  }

  async checkpoints(plan: string, options: Look = {}): Promise<PlanCheckpointView[]> {
    return (await this.#connection.call(routes.listPlanCheckpoints, { params: { plan }, ...options })).items;
  }

  async deleteCheckpoint(plan: string, checkpointId: string, options: CallOptions = {}): Promise<void> {
    await this.#change(routes.deletePlanCheckpoint, { params: { plan, checkpointId } }, options);
  }

  /** Puts the files of a checkpoint into every member; while some are missing the state of the answer is `restoring`. */
  restore(
    plan: string,
    checkpoint: string,
    options: Omit<BodyInputOf<Routes['restorePlan']>, 'checkpoint'> & CallOptions = {},
  ): Promise<PlanView> {
    const { call, body } = split(options);
    return this.#change(routes.restorePlan, { params: { plan }, body: { checkpoint, ...body } }, call);
  }

  /** Settles what was interrupted, as the server does by itself. */
  recover(options: CallOptions = {}): Promise<PlanRecovery> {
    return this.#change(routes.recoverPlans, {}, options);
  }

  /** Refused while members have changes that are in no version, unless `discard`. */
  async delete(plan: string, options: CallOptions & { readonly discard?: boolean } = {}): Promise<void> {
    const { discard = false, ...call } = options;
    const query = { discard: discard ? ('true' as const) : ('false' as const) };
    await this.#change(routes.deletePlan, { params: { plan }, query }, call);
  }

  #change<Route extends AnyRoute>(
    route: Route,
    request: Omit<CallRequest<Route>, 'timeoutMs'>,
    options: CallOptions,
  ): Promise<ResultOf<Route>> {
    const key = { idempotencyKey: newIdempotencyKey() };
    return this.#connection.call(route, { ...request, ...key, ...options, timeoutMs: null } as CallRequest<Route>);
  }
}

/** What belongs to the call, and what to the body. */
function split<Options extends CallOptions>(options: Options) {
  const { signal, idempotencyKey, leaseToken, leaseWaitMs, generation, expectedVersion, ...body } = options;
  const call: CallOptions = {
    ...(signal !== undefined && { signal }),
    ...(idempotencyKey !== undefined && { idempotencyKey }),
    ...(leaseToken !== undefined && { leaseToken }),
    ...(leaseWaitMs !== undefined && { leaseWaitMs }),
    ...(generation !== undefined && { generation }),
    ...(expectedVersion !== undefined && { expectedVersion }),
  };
  return { call, body };
}
