/** From nothing to the end of the first command, one sandbox at a time and a hundred at once. */
import { againstPeer, type Finding, failed, figure, notMeasured } from '../finding.ts';
import { interleave, timed } from '../interleave.ts';
import { findPodman, type Podman } from '../podman.ts';
import type { Row, Scope } from '../row.ts';
import { startPlatform, startRaw } from '../start.ts';

const rounds = 60;
const podmanRounds = 15;
const burstSize = 100;
const burstRounds = 3;

export const createRow: Row = {
  name: 'create',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const raw = await startRaw(scope);
    const ours = async () => {
      const startedAt = performance.now();
      const sandbox = await platform.client.sandboxes.create();
      await sandbox.exec(['true']);
      const ms = performance.now() - startedAt;
      await sandbox.delete();
      return ms;
    };
    const samples = await interleave({ ours, raw: () => raw.run('create') }, { rounds, warmups: 3 });
    const name = 'create → first command done';
    return [
      againstPeer(figure(name, samples.ours), figure('raw spawner and init', samples.raw), { atMost: 2.5 }),
      await againstPodman(scope, { name, ours }),
    ];
  },
};

async function againstPodman(
  scope: Scope,
  options: { readonly name: string; readonly ours: () => Promise<number> },
): Promise<Finding> {
  const podman = await findPodman(scope);
  if (podman === undefined) return notMeasured(`${options.name}, against podman`, 'not installed');
  try {
    return await measurePodman(podman, options);
  } catch (error) {
    return failed(`${options.name}, against podman`, error);
  }
}

async function measurePodman(
  podman: Podman,
  options: { readonly name: string; readonly ours: () => Promise<number> },
): Promise<Finding> {
  const { ours } = options;
  const samples = await interleave({ ours, podman: () => timed(podman.run) }, { rounds: podmanRounds, warmups: 1 });
  return againstPeer(figure(options.name, samples.ours), figure('podman run --rm', samples.podman), { atMost: 0.2 });
}

export const burstRow: Row = {
  name: 'burst',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const raw = await startRaw(scope);
    const ours = async () => {
      const startedAt = performance.now();
      const makeOne = async () => {
        const sandbox = await platform.client.sandboxes.create();
        await sandbox.exec(['true']);
        return sandbox;
      };
      const sandboxes = await Promise.all(Array.from({ length: burstSize }, makeOne));
      const ms = performance.now() - startedAt;
      await Promise.all(sandboxes.map((sandbox) => sandbox.delete()));
      return ms;
    };
    const variants = { ours, raw: () => raw.run('burst', { count: burstSize }) };
    const samples = await interleave(variants, { rounds: burstRounds, warmups: 1 });
    const perSecond = (ms: number) => (burstSize * 1_000) / ms;
    return [
      againstPeer(
        figure(`${burstSize} creates at once with their first command, total`, samples.ours),
        figure('raw, total', samples.raw),
      ),
      againstPeer(
        figure(`${burstSize} creates at once, per second`, samples.ours.map(perSecond), '/s'),
        figure('raw, per second', samples.raw.map(perSecond), '/s'),
      ),
    ];
  },
};
