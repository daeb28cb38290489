/** Ports of a control without sandboxes: nothing listens and nothing is exposed. A test puts what it needs in place of it. */
import { PlatformError } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/index.ts';

export function fakeControlPorts(): ControlPort['ports'] {
  const notExposed = () => Promise.reject(new PlatformError('port_not_exposed', 'It is not exposed.'));
  return {
    list: async () => ({ listening: [], exposed: [] }),
    expose: async (_caller, { sandboxId, port }, _conditions, body) => ({
      ...{ sandboxId, port, public: body.public ?? false, createdAt: '2030-01-01T00:00:00.000Z' },
      token: `atoll_prv${'0'.repeat(40)}`,
    }),
    unexpose: async () => {},
    rotate: notExposed,
    open: () => Promise.reject(new PlatformError('port_not_open', 'Nothing answers there.')),
    admit: notExposed,
  };
}
