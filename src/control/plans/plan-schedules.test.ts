import { expect, test } from 'vitest';
import { PlanRig } from '../../../test/support/plan-rig.ts';
import { PlanSchedule } from '../../../test/support/plan-schedule.ts';
import { scheduleSeeds } from '../../../test/support/schedule-seeds.ts';

/** One rig serves many schedules: opening a database costs more than a schedule does. */
const perRig = 50;

test('C83: C5: whatever the schedule over three plans and four targets, histories hold whole plans only', {
  timeout: 600_000,
}, async () => {
  const seeds = scheduleSeeds({ count: 1_000 });
  console.log(`seeds ${seeds[0]} to ${seeds.at(-1)}`);
  for (let first = 0; first < seeds.length; first += perRig) {
    const rig = await PlanRig.open();
    try {
      for (const seed of seeds.slice(first, first + perRig)) await runOne(rig, seed);
    } finally {
      await rig.close();
    }
  }
});

async function runOne(rig: PlanRig, seed: number): Promise<void> {
  try {
    await new PlanSchedule(rig, seed).run({ steps: 6 });
  } catch (error) {
    expect.fail(`Schedule ${seed} failed; run it alone with ATOLL_SEED=${seed}.\n${(error as Error).stack}`);
  }
}
