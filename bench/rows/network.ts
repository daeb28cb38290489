/** What a network costs a sandbox: with `full` against `none`, one at a time and many at once, on a machine made of namespaces. */
import { Platform } from '../../test/support/platform.ts';
import { TestWorld } from '../../test/support/test-world.ts';
import { againstPeer, figure } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row, Scope } from '../row.ts';

const rounds = 60;
const burstSize = 50;
const burstRounds = 5;

export const networkRow: Row = {
  name: 'network',
  run: async (scope) => {
    const platform = await startInWorld(scope);
    const one = (mode: 'full' | 'none') => async () => {
      const startedAt = performance.now();
      const sandbox = await makeOne(platform, mode);
      const ms = performance.now() - startedAt;
      await sandbox.delete();
      return ms;
    };
    const many = (mode: 'full' | 'none') => async () => {
      const startedAt = performance.now();
      const sandboxes = await Promise.all(Array.from({ length: burstSize }, () => makeOne(platform, mode)));
      const ms = performance.now() - startedAt;
      await Promise.all(sandboxes.map((sandbox) => sandbox.delete()));
      return ms;
    };
    const single = await interleave({ full: one('full'), none: one('none') }, { rounds, warmups: 3 });
    const burst = await interleave({ full: many('full'), none: many('none') }, { rounds: burstRounds, warmups: 1 });
    return [
      againstPeer(
        figure('create → first command done, network full', single.full),
        figure('network none', single.none),
        {
          atMost: 1.5,
        },
      ),
      againstPeer(
        figure(`${burstSize} at once, network full, total`, burst.full),
        figure('network none, total', burst.none),
        {
          atMost: 1.5,
        },
      ),
    ];
  },
};

async function makeOne(platform: Platform, mode: 'full' | 'none') {
  const sandbox = await platform.client.sandboxes.create({ network: { mode } });
  await sandbox.exec(['true']);
  return sandbox;
}

async function startInWorld(scope: Scope): Promise<Platform> {
  const world = await TestWorld.open();
  scope.stack.defer(() => world.close());
  const platform = await Platform.start({ world, unwatched: true });
  scope.stack.defer(() => platform.close());
  return platform;
}
