/** Every route, bound in one line each. A handler that grows an `if` has found a rule for control. */
import { routes } from '../protocol/index.ts';
import { bindBranches } from './bind-branches.ts';
import { bindFileRoutes } from './bind-file-routes.ts';
import { bindPlans } from './bind-plans.ts';
import { bindPorts } from './bind-ports.ts';
import { bindProcesses } from './bind-processes.ts';
import { bindSessions } from './bind-sessions.ts';
import { bindTemplates } from './bind-templates.ts';
import { bindTerminals } from './bind-terminals.ts';
import { bindWorkspaces } from './bind-workspaces.ts';
import type { ControlPort } from './control-port.ts';
import type { EventStreams } from './event-stream.ts';
import type { PreviewAddresses } from './previews/preview-addresses.ts';
import { Answer, type Handle } from './route-binding.ts';

const version = (view: { readonly version: number }) => view.version;

export function bindRoutes(
  handle: Handle,
  control: ControlPort,
  streams: EventStreams,
  previews: PreviewAddresses,
): void {
  const { who, sandboxes, metadata, execution, leases, events, webhooks, operations, reconciler } = control;

  handle(
    routes.createSandbox,
    async ({ caller, conditions, body }) => {
      const { view, created } = await sandboxes.create(caller, conditions, body);
      return new Answer(view, { status: created ? 201 : 200 });
    },
    { etag: version },
  );
  handle(routes.listSandboxes, ({ caller, query }) => sandboxes.list(caller, query));
  handle(routes.getSandbox, ({ caller, params }) => sandboxes.get(caller, params.sandboxId), { etag: version });
  handle(
    routes.updateSandbox,
    ({ caller, params, conditions, body }) => sandboxes.update(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(
    routes.stopSandbox,
    ({ caller, params, conditions, body }) => sandboxes.stop(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(
    routes.startSandbox,
    ({ caller, params, conditions, body }) => sandboxes.start(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(routes.deleteSandbox, ({ caller, params, conditions, query }) =>
    sandboxes.delete(caller, params.sandboxId, conditions, { force: query.force === 'true' }),
  );

  handle(routes.getMetadata, ({ caller, params }) => metadata.get(caller, params.sandboxId), { etag: version });
  handle(
    routes.patchMetadata,
    ({ caller, params, conditions, body }) => metadata.patch(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(routes.listMetadataHistory, ({ caller, params, query }) => metadata.history(caller, params.sandboxId, query));

  // A caller that goes away detaches; the command goes on, unless the caller said otherwise.
  handle(routes.exec, ({ caller, params, conditions, body, exchange }) =>
    execution.exec(
      caller,
      params.sandboxId,
      conditions,
      body,
      body.stopOnDisconnect ? exchange.disconnected : undefined,
    ),
  );

  bindFileRoutes(handle, control.files, streams);

  bindProcesses(handle, control.processes, streams);
  bindSessions(handle, control.sessions);

  bindPorts(handle, control.ports, previews);

  bindTerminals(handle, control.terminals);

  bindBranches(handle, control);
  bindWorkspaces(handle, control);
  bindPlans(handle, control);
  bindTemplates(handle, control.templates, streams);

  handle(routes.acquireLease, ({ caller, conditions, body, exchange }) =>
    leases.acquire(caller, conditions, body, exchange.ending),
  );
  handle(routes.renewLease, ({ caller, params, conditions, body }) =>
    leases.renew(caller, params.leaseId, conditions, body),
  );
  handle(routes.releaseLease, ({ caller, params, conditions }) => leases.release(caller, params.leaseId, conditions));
  handle(routes.holdLease, ({ caller, params, exchange }) =>
    streams.answerWith(exchange, leases.hold(caller, params.leaseId, exchange.ending)),
  );
  handle(routes.listLeases, ({ caller, query }) => leases.list(caller, query));

  handle(routes.whoAmI, ({ caller }) => who.me(caller), { openToEveryKey: true });
  handle(routes.createKey, ({ caller, conditions, body }) => who.createKey(caller, conditions, body));
  handle(routes.listKeys, ({ caller }) => who.listKeys(caller));
  handle(routes.revokeKey, ({ caller, params, conditions }) => who.revokeKey(caller, conditions, params.keyId));
  handle(routes.createSandboxToken, ({ caller, params, conditions, body }) =>
    who.createSandboxToken(caller, params.sandboxId, conditions, body),
  );
  handle(routes.createUser, ({ caller, conditions, body }) => who.createUser(caller, conditions, body));
  handle(routes.listUsers, ({ caller }) => who.listUsers(caller));
  handle(routes.createTeam, ({ caller, conditions, body }) => who.createTeam(caller, conditions, body));
  handle(routes.updateTeam, ({ caller, params, conditions, body }) =>
    who.updateTeam(caller, conditions, params.teamId, body),
  );
  handle(routes.listTeams, ({ caller }) => who.listTeams(caller));

  handle(routes.listEvents, ({ caller, query, exchange }) =>
    streams.isWanted(exchange) ? streams.answer(exchange, caller, query) : events.list(caller, query),
  );
  handle(routes.getOperation, ({ caller, params }) => operations.get(caller, params.operation));
  handle(routes.createWebhook, ({ caller, conditions, body }) => webhooks.create(caller, conditions, body));
  handle(routes.listWebhooks, ({ caller }) => webhooks.list(caller));
  handle(routes.deleteWebhook, ({ caller, params, conditions }) =>
    webhooks.delete(caller, conditions, params.webhookId),
  );
  handle(routes.reconcile, ({ caller, body }) => reconciler.run(caller, body));
}
