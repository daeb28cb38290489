/** Agents that share a checkout; `npm run soak:checkout` does the same for longer. */
import { expect } from 'vitest';
import { runAgents } from '../support/agents-in-checkout.ts';
import { CheckoutRig } from '../support/checkout-cli-rig.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups, requires.program('git'));

test(
  'P35, P82: 8 agents in one checkout, some of them killed: no edit is lost, one sandbox, no lease is left',
  async () => {
    const platform = await Platform.start();
    const rig = await CheckoutRig.open(platform);
    try {
      const root = await rig.repository('agents');
      const report = await runAgents({ platform, rig, root, agents: 8, rounds: 30, killEvery: 15 });
      expect(report.wrong).toEqual([]);
      expect(report.done + report.killed).toBe(30);
    } finally {
      await rig.close();
      await platform.close();
    }
  },
  { timeout: 600_000 },
);
