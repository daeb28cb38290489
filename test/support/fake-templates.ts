/** Templates of a node that has none: enough for tests that are about something else. */
import { type NodeTemplates, PlatformError } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/control-port.ts';

const refuse = async (): Promise<never> => {
  throw new PlatformError('template_not_found', 'This node builds no templates.');
};

export const noTemplates: NodeTemplates = {
  build: refuse,
  getBuild: refuse,
  // biome-ignore lint/correctness/useYield: it refuses before the first item.
  async *followBuild() {
    await refuse();
  },
  readBuild: refuse,
  cancelBuild: refuse,
  appendContext: refuse,
  list: async () => [],
  get: refuse,
  remove: async () => {},
};

export const noTemplateCalls: ControlPort['templates'] = {
  build: refuse,
  uploadContext: refuse,
  getBuild: refuse,
  // biome-ignore lint/correctness/useYield: it refuses before the first item.
  async *follow() {
    await refuse();
  },
  log: refuse,
  cancel: refuse,
  list: async () => ({ items: [] }),
  get: refuse,
  remove: async () => {},
};
