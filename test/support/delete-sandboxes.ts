/** Deletes every sandbox of the node with this data directory, without a server: it may be what a test has broken. */
import { ensureNativeInit } from '../../src/app/index.ts';
import { SandboxNode } from '../../src/node/index.ts';
import { smallPool } from './small-pool.ts';

export async function deleteSandboxes(nodeDirectory: string): Promise<void> {
  // What is there already stays what it is; nothing large is made where the server has not come so far.
  const storage = { storage: 'directories', poolSizes: smallPool } as const;
  const options = { initProgram: await ensureNativeInit(), version: 'test', ...storage };
  const node = await SandboxNode.open({ dataDirectory: nodeDirectory, ...options });
  try {
    const { sandboxes } = await node.inventory();
    await Promise.all(
      sandboxes.map(({ mark, generation }) => node.deleteSandbox({ sandboxId: mark.sandboxId, generation })),
    );
  } finally {
    await node.close();
  }
}
