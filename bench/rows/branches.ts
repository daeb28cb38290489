/**
 * What branches cost through the API: a fork and a restore against a create, a start on a chain of checkpoints against one, a pause by freeze
 * against a plain request, and a checkpoint of a sandbox that holds much against one that holds nothing.
 */
import { readFile } from 'node:fs/promises';
import { assert } from '../../src/base/index.ts';
import type { Atoll, Sandbox } from '../../src/sdk/index.ts';
import { btrfs } from '../../test/support/btrfs.ts';
import { compileTreeTool } from '../../test/support/layer-rig.ts';
import { againstPeer, type Finding, figure, notMeasured } from '../finding.ts';
import { interleave, timed } from '../interleave.ts';
import type { Row } from '../row.ts';
import { startPlatform } from '../start.ts';

const rounds = 30;
const chainLength = 50;
const gibibyte = 1024 ** 3;
const poolSizes = {
  initialBytes: 8 * gibibyte,
  reserveBytes: gibibyte,
  stepBytes: gibibyte,
  limitBytes: 16 * gibibyte,
};

export const branchesRow: Row = {
  name: 'branches',
  run: async (scope) => {
    const missing = btrfs.missing();
    if (missing !== undefined) return [notMeasured('branches', 'not installed', missing)];
    const platform = await startPlatform(scope, { storage: 'pool', poolSizes });
    const { sandboxes } = platform.client;
    const source = await sandboxes.create();
    await source.files.write('/workspace/file', 'source');
    const create = async () => {
      const startedAt = performance.now();
      const made = await sandboxes.create();
      return await untilUsed(made, startedAt);
    };
    return [
      ...(await forksAndRestores(source, create)),
      await chain(source, (checkpoint) => sandboxes.create({ checkpoint })),
      await pauses(await sandboxes.create()),
      ...(await bigCheckpoints(platform.client, {
        big: await sandboxes.create(),
        fresh: await sandboxes.create(),
        holder: await readFile(await compileTreeTool()),
      })),
    ];
  },
};

/** From the request to the end of the first command; it is gone afterwards. */
async function untilUsed(made: Sandbox, startedAt: number): Promise<number> {
  await made.exec(['true']);
  const ms = performance.now() - startedAt;
  await made.delete();
  return ms;
}

async function forksAndRestores(source: Sandbox, create: () => Promise<number>): Promise<Finding[]> {
  const { id } = await source.checkpoints.create();
  const samples = await interleave(
    {
      create,
      fork: async () => {
        const startedAt = performance.now();
        const [fork] = await source.fork();
        return await untilUsed(fork!.sandbox!, startedAt);
      },
      restore: () =>
        timed(async () => {
          await source.restore(id);
          await source.exec(['true']);
        }),
    },
    { rounds, warmups: 3 },
  );
  const peer = figure('create → first command done', samples.create);
  return [
    againstPeer(figure('fork → first command done', samples.fork), peer, { atMost: 2 }),
    againstPeer(figure('restore → first command done', samples.restore), peer, { atMost: 2 }),
  ];
}

async function chain(source: Sandbox, begin: (checkpoint: string) => Promise<Sandbox>): Promise<Finding> {
  const { id: first } = await source.checkpoints.create();
  let last = first;
  for (let depth = 1; depth < chainLength; depth++) {
    await source.files.write(`/workspace/step-${depth}`, String(depth));
    ({ id: last } = await source.checkpoints.create());
    await source.restore(last);
  }
  const start = (checkpoint: string) => async () => {
    const startedAt = performance.now();
    return await untilUsed(await begin(checkpoint), startedAt);
  };
  const samples = await interleave({ deep: start(last), flat: start(first) }, { rounds, warmups: 3 });
  const name = `a sandbox from a chain of ${chainLength} checkpoints → first command done`;
  return againstPeer(figure(name, samples.deep), figure('from one', samples.flat), { atMost: 1.5 });
}

async function pauses(sandbox: Sandbox): Promise<Finding> {
  const samples = await interleave(
    {
      pause: () =>
        timed(async () => {
          await sandbox.pause();
          await sandbox.resume();
        }),
      request: () => timed(() => sandbox.patchMetadata({ at: String(performance.now()) })),
    },
    { rounds, warmups: 3 },
  );
  return againstPeer(figure('pause and resume by freeze', samples.pause), figure('a plain request', samples.request), {
    atMost: 3,
  });
}

/** In both a process writes to an open and a mapped file throughout. */
async function bigCheckpoints(
  client: Atoll,
  { big, fresh, holder }: { readonly big: Sandbox; readonly fresh: Sandbox; readonly holder: Uint8Array },
): Promise<Finding[]> {
  const filled = await big.exec(
    'mkdir /workspace/many && cd /workspace/many && for d in $(seq 100); do mkdir $d; for f in $(seq 500); do printf "%8192s" "" > $d/$f; done; done; for n in $(seq 16); do head -c 100M /dev/zero > large-$n; done; sync; find . -type f | wc -l',
  );
  assert(Number(filled.stdout) === 50_016, 'The sandbox holds what the row says.');
  for (const sandbox of [big, fresh]) {
    await sandbox.files.write('/workspace/hold', holder, { mode: 0o755 });
    await sandbox.processes.start(
      '/workspace/hold hold /workspace/held | { read ready; touch /workspace/ready; cat; }',
    );
    await sandbox.exec('until test -e /workspace/ready; do sleep 0.01; done');
  }
  const checkpoint = (of: Sandbox, options: { isKept: boolean }) => async () => {
    await of.files.write('/workspace/changed', String(performance.now()));
    const startedAt = performance.now();
    const { id } = await of.checkpoints.create();
    const ms = performance.now() - startedAt;
    if (!options.isKept) await client.checkpoints.delete(id);
    return ms;
  };
  const measure = (options: { isKept: boolean }) =>
    interleave({ big: checkpoint(big, options), fresh: checkpoint(fresh, options) }, { rounds, warmups: 3 });
  const name = 'live checkpoint of 2 GB in 50,000 files, one file changed, through the API';
  const single = await measure({ isKept: false });
  const many = await measure({ isKept: true });
  return [
    againstPeer(figure(name, single.big), figure('of a fresh one', single.fresh), { atMost: 2 }),
    againstPeer(figure(`the same, each of ${rounds} kept`, many.big), figure('of a fresh one', many.fresh)),
  ];
}
