/** Templates of a node that has none: enough for tests that are about something else. */
import { type NodeTemplates, PlatformError } from '../../src/protocol/index.ts';

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
  cancelBuild: refuse,
  appendContext: refuse,
  list: async () => [],
  get: refuse,
  remove: async () => {},
};
