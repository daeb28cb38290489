/** What an idle sandbox takes of the machine, beyond what the daemon takes itself. */
import { setTimeout as delay } from 'node:timers/promises';
import { againstLimit, figure, formatNumber } from '../finding.ts';
import type { Row } from '../row.ts';
import { createMany, startPlatform } from '../start.ts';
import { median } from '../statistics.ts';
import { anonymousBytesOf, availableBytes, memoryParts } from '../system.ts';

const count = 200;
const readings = 7;
const readingPauseMs = 200;
const mebibyte = 1024 ** 2;

export const memoryRow: Row = {
  name: 'memory',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    // The first one builds the template and warms the daemon.
    const first = await platform.client.sandboxes.create();
    await first.exec(['true']);
    const partsBefore = memoryParts();
    const before = await look(platform.server.pid);
    const sandboxes = await createMany(platform, count);
    await Promise.all(sandboxes.slice(0, 8).map((sandbox) => sandbox.exec(['true'])));
    const after = await look(platform.server.pid);
    const partsAfter = memoryParts();
    const taken = (before.available - after.available) / mebibyte;
    const daemon = (after.daemon - before.daemon) / mebibyte;
    const ours = figure('memory of an idle sandbox', [(taken - daemon) / count], 'MiB');
    return [
      againstLimit(
        ours,
        { atMost: 1 },
        {
          notes: [
            `${count} sandboxes took ${formatNumber(taken)} MiB of MemAvailable, ${formatNumber(daemon)} of them in the daemon.`,
            `KiB each, the daemon included: ${describeParts(partsBefore, partsAfter)}.`,
          ],
        },
      ),
    ];
  },
};

function describeParts(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): string {
  const each = [...after].map(([name, bytes]) => ({ name, kibibytes: (bytes - before.get(name)!) / 1024 / count }));
  return each.map(({ name, kibibytes }) => `${name} ${formatNumber(kibibytes)}`).join(', ');
}

/** Medians of some readings: whoever else runs on the machine takes and gives memory too. */
async function look(daemonPid: number): Promise<{ available: number; daemon: number }> {
  const available: number[] = [];
  const daemon: number[] = [];
  for (let reading = 0; reading < readings; reading++) {
    await delay(readingPauseMs);
    available.push(availableBytes());
    daemon.push(anonymousBytesOf(daemonPid));
  }
  return { available: median(available), daemon: median(daemon) };
}
