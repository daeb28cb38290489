import { expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { RandomSchedule } from '../../test/support/random-schedule.ts';
import { scheduleSeeds } from '../../test/support/schedule-seeds.ts';

/** One rig serves many schedules: opening a database costs more than a schedule does. */
const perRig = 25;

test('K48: whatever the schedule of mutations, mishaps and crashes, what callers were told is true', {
  timeout: 600_000,
}, async () => {
  const seeds = scheduleSeeds({ count: 300 });
  for (let first = 0; first < seeds.length; first += perRig) {
    const rig = await ControlRig.open();
    try {
      for (const seed of seeds.slice(first, first + perRig)) await runOne(rig, seed);
    } finally {
      await rig.close();
    }
  }
});

async function runOne(rig: ControlRig, seed: number): Promise<void> {
  try {
    await new RandomSchedule(rig, seed).run({ steps: 8 });
  } catch (error) {
    expect.fail(`Schedule ${seed} failed; run it alone with ATOLL_SEED=${seed}.\n${(error as Error).stack}`);
  }
}
