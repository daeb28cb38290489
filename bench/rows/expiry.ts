/** A thousand deadlines at one moment: how late each end is recorded and told to whoever follows the events. */

import type { Sandbox } from '../../src/sdk/index.ts';
import type { Platform } from '../../test/support/platform.ts';
import { figure, formatNumber, shownOnly } from '../finding.ts';
import { forEachAtOnce } from '../interleave.ts';
import type { Row } from '../row.ts';
import { createMany, startPlatform } from '../start.ts';

const count = 999; // A node holds 1,000; one more makes the template.
const updatesAtOnce = 16;
/** For setting one deadline; all are set before the first is due. */
const updateMs = 15;
const patienceMs = 120_000;

export const expiryRow: Row = {
  name: 'expiry',
  run: async (scope) => {
    const platform = await startPlatform(scope);
    await platform.client.sandboxes.create();
    const sandboxes = await createMany(platform, count);
    const stop = new AbortController();
    scope.stack.defer(() => stop.abort());
    const ends = followEnds(platform, stop.signal);
    const dueAtMs = Date.now() + count * updateMs;
    const deadlines = await setDeadlines(sandboxes, dueAtMs);
    const setLateMs = Date.now() - dueAtMs;
    const { recordedAt, toldAt } = await ends;
    const late = (times: ReadonlyMap<string, number>) =>
      [...deadlines].map(([id, due]) => (times.get(id) ?? Number.NaN) - due);
    const notes = [
      'Positive is late. All deadlines fall within one millisecond, so the last has waited for the work of all the others.',
      ...(setLateMs > 0
        ? [`The last deadline was set ${formatNumber(setLateMs)} ms after the first was due: not all fell together.`]
        : []),
    ];
    return [
      shownOnly(withMax(`${count} sandboxes expire at once: deadline → recorded end`, late(recordedAt)), { notes }),
      shownOnly(withMax(`${count} sandboxes expire at once: deadline → event received`, late(toldAt))),
    ];
  },
};

function withMax(name: string, samples: readonly number[]) {
  const found = figure(name, samples);
  return { ...found, name: `${name} (max ${formatNumber(found.summary.max)} ms)` };
}

async function setDeadlines(sandboxes: readonly Sandbox[], dueAtMs: number): Promise<Map<string, number>> {
  const deadlines = new Map<string, number>();
  await forEachAtOnce(sandboxes, updatesAtOnce, async (sandbox) => {
    const { expiresAt } = await sandbox.extend(Math.max(1, dueAtMs - Date.now()));
    deadlines.set(sandbox.id, expiresAt!.getTime());
  });
  return deadlines;
}

/** When each end was recorded, as the event says, and when it was received here. */
async function followEnds(platform: Platform, signal: AbortSignal) {
  const recordedAt = new Map<string, number>();
  const toldAt = new Map<string, number>();
  const limited = AbortSignal.any([signal, AbortSignal.timeout(patienceMs)]);
  for await (const event of platform.client.events.follow({ signal: limited })) {
    if (event.kind !== 'sandbox.stopped' || event.sandboxId === null) continue;
    toldAt.set(event.sandboxId, Date.now());
    recordedAt.set(event.sandboxId, Date.parse(event.at));
    if (toldAt.size === count) return { recordedAt, toldAt };
  }
  throw new Error(`${toldAt.size} of ${count} ends were told in ${patienceMs} ms.`);
}
