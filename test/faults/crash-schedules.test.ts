import { randomInt } from 'node:crypto';
import { expect } from 'vitest';
import { runSchedule } from '../support/crash-schedule.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

test(
  'K48: random changes while server and node are killed: no lost update, no duplicate, no invented exit code, nothing left',
  async () => {
    const seed = randomInt(2 ** 31);
    // For whoever has to find out why it failed: npm run soak -- --seed …
    process.stdout.write(`seed ${seed}\n`);
    const report = await runSchedule({ seed, durationMs: 35_000 });
    expect(report.violations, `seed ${seed}`).toEqual([]);
    // About thirty on a quiet machine; how many fit is the machine's affair.
    expect(report.kills.server + report.kills.node).toBeGreaterThanOrEqual(4);
    for (const kind of ['create', 'exec', 'patch', 'lease']) expect(report.operations[kind], kind).toBeGreaterThan(0);
  },
  { timeout: 180_000 },
);
