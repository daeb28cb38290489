/** The routes of terminals, bound in one line each; the WebSocket itself is in terminal-sockets.ts. */
import { PlatformError, routes } from '../protocol/index.ts';
import { Answer, type Handle } from './route-binding.ts';
import type { TerminalsPort } from './terminals-port.ts';

export function bindTerminals(handle: Handle, terminals: TerminalsPort): void {
  handle(routes.openTerminal, async ({ caller, params, conditions, body }) => {
    const { view, created } = await terminals.open(caller, params.sandboxId, conditions, body);
    return new Answer(view, { status: created ? 201 : 200 });
  });
  handle(routes.listTerminals, ({ caller, params }) => terminals.list(caller, params.sandboxId));
  handle(routes.getTerminal, ({ caller, params }) => terminals.get(caller, params));
  // Whoever asks for the upgrade never gets here.
  handle(routes.attachTerminal, async () => {
    throw new PlatformError('upgrade_required', 'A terminal is attached over a WebSocket: ask for an upgrade.');
  });
  handle(routes.resizeTerminal, ({ caller, params, conditions, body }) =>
    terminals.resize(caller, params, conditions, body),
  );
  handle(routes.signalTerminal, ({ caller, params, conditions, body }) =>
    terminals.signal(caller, params, conditions, body),
  );
  handle(routes.destroyTerminal, ({ caller, params, conditions, query }) =>
    terminals.destroy(caller, params, conditions, query),
  );
}
