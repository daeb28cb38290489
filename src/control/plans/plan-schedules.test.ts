import { expect, test } from 'vitest';
import { PlanRig } from '../../../test/support/plan-rig.ts';
import { PlanSchedule } from '../../../test/support/plan-schedule.ts';
import { scheduleSeeds } from '../../../test/support/schedule-seeds.ts';

/** One rig serves several schedules, for opening a database costs something; not many, for each of them is looked at by recovery for ever after. */
const perRig = 10;

test('C83: C5: whatever the schedule over three plans and four targets, histories hold whole plans only', {
  timeout: 600_000,
}, async () => {
  const seeds = scheduleSeeds({ count: 1_000 });
  console.log(`seeds ${seeds[0]} to ${seeds.at(-1)}`);
  let found = 0;
  for (let first = 0; first < seeds.length; first += perRig) {
    const rig = await PlanRig.open();
    try {
      for (const seed of seeds.slice(first, first + perRig)) found += await runOne(rig, seed);
    } finally {
      await rig.close();
    }
  }
  // Of many schedules most write something that is looked for afterwards.
  if (seeds.length > 10) expect(found).toBeGreaterThan(seeds.length);
});

/** How many texts it found where they belong. */
async function runOne(rig: PlanRig, seed: number): Promise<number> {
  try {
    const schedule = new PlanSchedule(rig, seed);
    await schedule.run({ steps: 6 });
    return schedule.found;
  } catch (error) {
    expect.fail(`Schedule ${seed} failed; run it alone with ATOLL_SEED=${seed}.\n${(error as Error).stack}`);
  }
}
