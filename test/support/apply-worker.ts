/**
 * A process that applies plans and takes them back, one order after another, for tests that end it in the middle. An order is a line of JSON on
 * stdin, its answer one on stdout. `killAt` ends the process at that point of the order, counted from 1; `pauseAt` says so and waits for a line.
 */
import { createInterface } from 'node:readline';
import { type ApplyOptions, applyPlan, applyStatus, undoLast } from '../../src/checkout/apply/index.ts';
import { planTarget, type RigTarget } from './apply-rig.ts';

export interface ApplyOrder {
  readonly do: 'apply' | 'undo' | 'status';
  readonly state: string;
  readonly nowMs: number;
  readonly commitId?: string;
  readonly targets?: readonly RigTarget[];
  readonly flip?: boolean;
  readonly killAt?: number;
  /** Ends it at the first point of this name. */
  readonly killIn?: string;
  readonly pauseAt?: number;
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);

for (;;) {
  const line = await lines.next();
  if (line.done) break;
  const order = JSON.parse(line.value) as ApplyOrder;
  let hits = 0;
  let nowMs = order.nowMs;
  const options: ApplyOptions = {
    stateDirectory: order.state,
    env: process.env,
    nowMs: () => nowMs++,
    command: 'worker',
    faults: {
      hit: async (name) => {
        hits++;
        if (hits === order.killAt || name === order.killIn) {
          process.kill(process.pid, 'SIGKILL');
          await new Promise(() => {});
        }
        if (hits === order.pauseAt) {
          say({ paused: name });
          await lines.next();
        }
      },
    },
  };
  try {
    if (order.do === 'status') {
      say({ records: await applyStatus(options), hits });
      continue;
    }
    const targets = (order.targets ?? []).map((target) => ({ target: planTarget(target), place: target.place }));
    const plan = { planId: 'pln1', planName: 'a plan', commitId: order.commitId ?? 'cmt1', targets };
    const flip = order.flip === true;
    const result = order.do === 'apply' ? await applyPlan(plan, { ...options, flip }) : await undoLast(options);
    say({ result: result ?? null, hits });
  } catch (error) {
    say({ error: String(error), hits });
  }
}
