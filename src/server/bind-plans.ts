/** The routes of plans, bound in one line each. */
import { routes } from '../protocol/index.ts';
import type { PlansPort } from './plans-port.ts';
import type { Handle } from './route-binding.ts';

const etag = (view: { readonly version: number }) => view.version;

export function bindPlans(handle: Handle, { plans }: PlansPort): void {
  const { views, commits, rollbacks, checkpoints, restores, recovery } = plans;
  handle(routes.createPlan, ({ caller, conditions, body }) => plans.create(caller, conditions, body), { etag });
  handle(routes.listPlans, ({ caller, query }) => views.list(caller, query));
  handle(routes.getPlan, ({ caller, params }) => views.get(caller, params.plan), { etag });
  handle(routes.getPlanStatus, ({ caller, params, exchange }) => views.status(caller, params.plan, exchange.ending));
  handle(
    routes.addPlanMember,
    ({ caller, params, conditions }) => plans.add(caller, params.plan, conditions, params.sandboxId),
    { etag },
  );
  handle(
    routes.removePlanMember,
    ({ caller, params, conditions }) => plans.remove(caller, params.plan, conditions, params.sandboxId),
    { etag },
  );
  handle(routes.commitPlan, ({ caller, params, conditions, body, exchange }) =>
    commits.commit(caller, params.plan, conditions, body, exchange.ending),
  );
  handle(routes.getPlanCommit, ({ caller, params }) => commits.get(caller, params.plan, params.commitId));
  handle(routes.listPlanCommits, ({ caller, params }) => commits.list(caller, params.plan));
  handle(routes.revertPlan, ({ caller, params, conditions, body, exchange }) =>
    commits.revert(caller, params.plan, conditions, body, exchange.ending),
  );
  handle(
    routes.rollBackPlan,
    ({ caller, params, conditions, body }) => rollbacks.rollBack(caller, params.plan, conditions, body),
    { etag },
  );
  handle(routes.createPlanCheckpoint, ({ caller, params, conditions, body }) =>
    checkpoints.create(caller, params.plan, conditions, body),
  );
  handle(routes.listPlanCheckpoints, ({ caller, params }) => checkpoints.list(caller, params.plan));
  handle(routes.deletePlanCheckpoint, ({ caller, params, conditions }) =>
    checkpoints.delete(caller, params.plan, conditions, params.checkpointId),
  );
  handle(
    routes.restorePlan,
    ({ caller, params, conditions, body }) => restores.restore(caller, params.plan, conditions, body),
    { etag },
  );
  handle(routes.recoverPlans, ({ caller }) => recovery.ask(caller));
  handle(routes.deletePlan, ({ caller, params, conditions, query }) =>
    plans.delete(caller, params.plan, conditions, { discard: query.discard === 'true' }),
  );
}
