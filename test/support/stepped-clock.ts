/** Time of a client that passes as it is waited for, at once. */
import type { ClientClock } from '../../src/sdk/index.ts';

export function steppedClock() {
  const waits: number[] = [];
  let now = 0;
  const clock: ClientClock = {
    nowMs: () => now,
    wait: async (ms) => {
      waits.push(ms);
      now += ms;
    },
  };
  return { clock, waits };
}
