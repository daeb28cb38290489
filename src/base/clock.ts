/**
 * Time, passed in wherever it is needed so that tests can step it.
 *
 * Two times, for two purposes: the time of day is for people and may jump; boot time is for terms and deadlines. Boot
 * times are comparable only under the same `bootId`, and then also between processes.
 */
import { readFileSync } from 'node:fs';

export interface Clock {
  /** The time of day, in whole milliseconds since 1970. May jump either way. */
  nowMs(): number;
  /** Whole milliseconds since the machine booted. Never goes back. */
  bootMs(): number;
  /** Changes when the machine boots. */
  readonly bootId: string;
}

/** Starts what is due later; apart from `Clock`, because most users of a clock wait for nothing. */
export interface Timers {
  /** Runs `run` once after `delayMs`; the answer cancels it. Whoever starts a timer owns its end. */
  after(delayMs: number, run: () => void): () => void;
}

export const systemTimers: Timers = {
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
};

/**
 * The machine's own clocks. Boot time is anchored once to /proc/uptime, which counts time asleep and is the same for
 * every process, and goes on with the monotonic clock, which is a hundred times cheaper and finer than the file's 10 ms.
 */
export class SystemClock implements Clock {
  readonly bootId: string;
  readonly #anchorNs: bigint;

  constructor() {
    this.bootId = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    this.#anchorNs = readUptimeNs() - process.hrtime.bigint();
  }

  nowMs(): number {
    return Date.now();
  }

  bootMs(): number {
    return Number((this.#anchorNs + process.hrtime.bigint()) / 1_000_000n);
  }
}

function readUptimeNs(): bigint {
  const [uptime = ''] = readFileSync('/proc/uptime', 'utf8').split(' ');
  const match = /^(\d+)\.(\d\d)$/.exec(uptime);
  if (!match) throw new Error(`/proc/uptime begins with "${uptime}", which is not a number of seconds.`);
  return BigInt(match[1]! + match[2]!) * 10_000_000n;
}
