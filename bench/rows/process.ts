/** Processes through the SDK: the first byte of one, ten megabytes of one, and what a thousand of them take of the daemon. */
import { setTimeout as delay } from 'node:timers/promises';
import { againstLimit, againstPeer, figure, formatNumber } from '../finding.ts';
import { interleave } from '../interleave.ts';
import type { Row } from '../row.ts';
import { addressOf, createMany, startPlainPeer, startPlatform, startSdkLoad } from '../start.ts';
import { median } from '../statistics.ts';
import { anonymousBytesOf } from '../system.ts';
import { Worker } from '../worker.ts';

/** A daemon lives long: what is measured is not the first hundred times that a path is gone, before it is compiled. */
const firstBytes = { rounds: 200, warmups: 1_000 };
const outputBytes = 10_000_000;
const sandboxes = 100;
const processesEach = 10;
const mebibyte = 1024 ** 2;

export const processRow: Row = {
  name: 'process',
  run: async (scope) => {
    const { load } = await startSdkLoad(scope);
    const peer = await startPlainPeer(scope);
    const first = { command: ['sh', '-c', 'echo ready'], bytes: 6 };
    const firsts = await interleave(
      { ours: () => load.run('output', first), spawn: () => peer.run('output', first) },
      firstBytes,
    );
    const many = { command: ['head', '-c', String(outputBytes), '/dev/zero'], bytes: outputBytes };
    const streams = await interleave(
      { ours: () => load.run('output', many), spawn: () => peer.run('output', many) },
      { rounds: 20, warmups: 3 },
    );
    return [
      againstPeer(
        figure('process start → first byte, through the SDK', firsts.ours),
        figure('spawn, first byte', firsts.spawn),
        { atMost: 1 },
      ),
      againstPeer(figure('10 MB of output, through the SDK', streams.ours), figure('spawn, a pipe', streams.spawn), {
        atMost: 3,
      }),
    ];
  },
};

export const processMemoryRow: Row = {
  name: 'process-memory',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    const made = await createMany(platform, sandboxes);
    await Promise.all(made.slice(0, 8).map((sandbox) => sandbox.exec(['true'])));
    const load = Worker.start(scope, 'sdk-load.ts');
    await load.run('connect', { address: addressOf(platform) });
    const before = await settledBytes(platform.server.pid);
    await load.run('follow', { sandboxIds: made.map(({ id }) => id), each: processesEach });
    const after = await settledBytes(platform.server.pid);
    const count = sandboxes * processesEach;
    const taken = (after - before) / mebibyte;
    return [
      againstLimit(
        figure(`${count} processes in ${sandboxes} sandboxes, each followed: daemon memory`, [taken], 'MiB'),
        { atMost: 100 },
        {
          notes: [
            `${formatNumber((taken * 1024) / count)} KiB each; the daemon had ${formatNumber(before / mebibyte)} MiB before.`,
          ],
        },
      ),
    ];
  },
};

/** The median of some readings: garbage comes and goes. */
async function settledBytes(pid: number): Promise<number> {
  const readings: number[] = [];
  for (let reading = 0; reading < 9; reading++) {
    await delay(500);
    readings.push(anonymousBytesOf(pid));
  }
  return median(readings);
}
