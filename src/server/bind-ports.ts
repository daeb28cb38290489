/** The routes of ports, bound in one line each. Control knows what is exposed, and only the server under which addresses. */
import type { ExposedPort } from '../control/index.ts';
import { routes } from '../protocol/index.ts';
import type { Exchange } from './exchange.ts';
import type { PortsPort } from './ports-port.ts';
import type { PreviewAddresses } from './previews/preview-addresses.ts';
import type { Handle } from './route-binding.ts';

export function bindPorts(handle: Handle, ports: PortsPort, addresses: PreviewAddresses): void {
  const withUrls = <Exposed extends ExposedPort>(exposed: Exposed, { request }: Exchange) => ({
    ...exposed,
    ...addresses.urlsOf(exposed, request.headers.host ?? ''),
  });
  handle(routes.listPorts, async ({ caller, params, conditions, exchange }) => {
    const { listening, exposed } = await ports.list(caller, params.sandboxId, conditions);
    return { listening, exposed: exposed.map((one) => withUrls(one, exchange)) };
  });
  handle(routes.exposePort, async ({ caller, params, conditions, body, exchange }) =>
    withUrls(await ports.expose(caller, params, conditions, body), exchange),
  );
  handle(routes.unexposePort, ({ caller, params, conditions }) => ports.unexpose(caller, params, conditions));
  handle(routes.rotatePortToken, async ({ caller, params, conditions, exchange }) =>
    withUrls(await ports.rotate(caller, params, conditions), exchange),
  );
}
