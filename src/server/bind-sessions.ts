/** The routes of sessions, bound in one line each. */
import { routes } from '../protocol/index.ts';
import type { Handle } from './route-binding.ts';
import type { SessionsPort } from './sessions-port.ts';

export function bindSessions(handle: Handle, sessions: SessionsPort): void {
  handle(routes.createSession, ({ caller, params, conditions, body }) =>
    sessions.create(caller, params.sandboxId, conditions, body),
  );
  handle(routes.listSessions, ({ caller, params }) => sessions.list(caller, params.sandboxId));
  handle(routes.getSession, ({ caller, params }) => sessions.get(caller, params));
  // A caller that goes away detaches; the command goes on, unless the caller said otherwise.
  handle(routes.execInSession, ({ caller, params, conditions, body, exchange }) =>
    sessions.exec(caller, params, conditions, body, body.stopOnDisconnect ? exchange.disconnected : undefined),
  );
  handle(routes.setSessionEnv, ({ caller, params, conditions, body }) =>
    sessions.setEnv(caller, params, conditions, body),
  );
  handle(routes.startSessionProcess, ({ caller, params, conditions, body }) =>
    sessions.startProcess(caller, params, conditions, body),
  );
  handle(routes.deleteSession, ({ caller, params, conditions }) => sessions.delete(caller, params, conditions));
}
