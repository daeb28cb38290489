/**
 * What sandboxes use, as E2B's clients ask for it. Nothing is collected between the questions: the answer is one reading, taken when it is asked for,
 * and an interval that does not reach to the present has none.
 */
import { z } from 'zod';
import type { Timers } from '../../base/index.ts';
import type { Caller } from '../../control/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { parsePart } from '../invalid-request.ts';
import { E2bError } from './e2b-error.ts';
import { sandboxIdIn } from './edge-addresses.ts';
import { readMetric } from './metric-reading.ts';
import type { Asked, SandboxCalls, Told } from './sandbox-calls.ts';
import { type SandboxSeen, stateOf } from './sandbox-views.ts';

/** How far from the present the end of an interval may be: clients give whole seconds. */
const slackS = 10;
const latestMax = 100;

const seconds = z.coerce.number().optional();
const seriesQuery = z.strictObject({ start: seconds, end: seconds });
const latestQuery = z.strictObject({ sandbox_ids: z.string() });

export class MetricCalls {
  readonly #control: ControlPort;
  readonly #sandboxes: SandboxCalls;
  readonly #timers: Timers;

  constructor(control: ControlPort, sandboxes: SandboxCalls, timers: Timers) {
    this.#control = control;
    this.#sandboxes = sandboxes;
    this.#timers = timers;
  }

  async series(asked: Asked): Promise<Told> {
    const { start, end } = parsePart(seriesQuery, 'query', Object.fromEntries(new URLSearchParams(asked.search)));
    const seen = await this.#sandboxes.get(asked);
    const nowS = Date.now() / 1000;
    const isPresent = (start ?? 0) <= nowS + slackS && (end ?? nowS) >= nowS - slackS;
    const isRunning = stateOf(seen) === 'running';
    return { status: 200, body: isPresent && isRunning ? [await this.#read(asked.caller, seen)] : [] };
  }

  async latest(asked: Asked): Promise<Told> {
    const { sandbox_ids: text } = parsePart(
      latestQuery,
      'query',
      Object.fromEntries(new URLSearchParams(asked.search)),
    );
    const ids = [...new Set(text.split(',').map(sandboxIdIn))];
    if (ids.length > latestMax) throw new E2bError(400, `At most ${latestMax} sandboxes are asked about at once.`);
    const found = await Promise.all(ids.map((id) => this.#find(asked, id)));
    return { status: 200, body: { sandboxes: Object.fromEntries(found.flat()) } };
  }

  /** Nothing of one that is not there, or not running. */
  async #find(asked: Asked, id: string): Promise<[string, unknown][]> {
    try {
      const seen = await this.#sandboxes.get({ ...asked, params: { sandboxID: id } });
      return stateOf(seen) === 'running' ? [[id, await this.#read(asked.caller, seen)]] : [];
    } catch (error) {
      const isGone = error instanceof E2bError || isPlatformError(error, 'sandbox_wrong_state', 'sandbox_unavailable');
      if (isGone) return [];
      throw error;
    }
  }

  #read(caller: Caller, seen: SandboxSeen) {
    return readMetric({ control: this.#control, timers: this.#timers }, caller, seen);
  }
}
