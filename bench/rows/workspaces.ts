/** What workspaces cost through the API: a sandbox with a workspace of many files, attached the tenth time, against one without. */
import type { Sandbox } from '../../src/sdk/index.ts';
import { btrfs } from '../../test/support/btrfs.ts';
import { buildTar } from '../../test/support/tar-builder.ts';
import { againstPeer, figure, notMeasured } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlatform } from '../start.ts';

const rounds = 30;
const files = 20_000;
const filesPerDirectory = 100;

export const workspacesRow: Row = {
  name: 'workspaces',
  run: async (scope) => {
    const missing = btrfs.missing();
    if (missing !== undefined) return [notMeasured('workspaces', 'not installed', missing)];
    const { client } = await startPlatform(scope, { storage: 'pool' });
    await client.workspaces.create('many', { content: 'none' });
    await client.workspaces.import('many', manyFiles(), { kind: 'archive' });
    const workspaces = [{ workspace: 'many', path: '/src' }];
    const samples = await interleave(
      {
        create: async () => untilUsed(await startedNow(() => client.sandboxes.create())),
        attach: async () => untilUsed(await startedNow(() => client.sandboxes.create({ workspaces }))),
      },
      { rounds, warmups: 3 },
    );
    const attach = figure('create with a workspace of 20,000 files, warm → first command done', samples.attach);
    return [againstPeer(attach, figure('create → first command done', samples.create), { atMost: 2 })];
  },
};

async function startedNow(make: () => Promise<Sandbox>): Promise<{ sandbox: Sandbox; startedAt: number }> {
  const startedAt = performance.now();
  return { sandbox: await make(), startedAt };
}

/** From the request to the end of the first command; it is gone afterwards. */
async function untilUsed({ sandbox, startedAt }: { sandbox: Sandbox; startedAt: number }): Promise<number> {
  await sandbox.exec(['true']);
  const ms = performance.now() - startedAt;
  await sandbox.delete();
  return ms;
}

function manyFiles(): Uint8Array {
  const items = Array.from({ length: files }, (_, index) => ({
    name: `d${Math.floor(index / filesPerDirectory)}/f${index}.txt`,
    content: `file ${index}\n`.repeat(10),
  }));
  return buildTar(items);
}
