/**
 * 8 agents in one checkout for 200 rounds, first left alone, then with a client killed every few rounds. `ROUNDS` sets another number,
 * `KILL_EVERY` does only one of both: 0 leaves them alone.
 */
import { runAgents } from '../test/support/agents-in-checkout.ts';
import { CheckoutRig } from '../test/support/checkout-cli-rig.ts';
import { Platform } from '../test/support/platform.ts';

const rounds = Number(process.env['ROUNDS'] ?? 200);
const only = process.env['KILL_EVERY'];
let isWrong = false;

for (const killEvery of only === undefined ? [0, 5] : [Number(only)]) {
  const platform = await Platform.start();
  const rig = await CheckoutRig.open(platform);
  const startMs = performance.now();
  try {
    const root = await rig.repository('agents');
    const onRound = (round: number) => {
      if (round % 20 === 19) console.log(`round ${round + 1} of ${rounds}`);
    };
    const { done, killed, wrong } = await runAgents({ platform, rig, root, agents: 8, rounds, killEvery, onRound });
    const seconds = Math.round((performance.now() - startMs) / 1_000);
    console.log(`${done} done, ${killed} killed, ${wrong.length} wrong, ${seconds} s`);
    for (const what of wrong) console.log(`  ${what}`);
    isWrong ||= wrong.length > 0;
  } finally {
    await rig.close();
    await platform.close();
  }
}
process.exitCode = isWrong ? 1 : 0;
