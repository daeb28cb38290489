/** The ordered stream of everything that changes: replay from a cursor, then live, without gap or repeat. */
import {
  type EventView,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { EventRecord, Readers } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';

const followBatch = 500;

export class Events {
  readonly #context: ControlContext;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  async list(caller: Caller, query: QueryOf<typeof routes.listEvents>): Promise<ResultOf<typeof routes.listEvents>> {
    const asked = {
      after: query.after ?? 0,
      limit: query.limit,
      ...(query.sandboxId && { sandboxId: query.sandboxId }),
    };
    const { items, last } = await this.#context.store.read(async (tables) => {
      if (query.after !== undefined) await checkKept(tables, query.after);
      const items = await tables.events.list({ teamId: caller.teamId, ...asked });
      return { items, last: (await tables.events.range()).last };
    });
    return { items: items.map(eventViewOf), last };
  }

  /** Without `after`, from now on. */
  async *follow(
    caller: Pick<Caller, 'teamId'>,
    from: { after?: number | undefined; sandboxId?: SandboxId | undefined },
    signal: AbortSignal,
  ): AsyncIterable<EventView> {
    const { store, events } = this.#context;
    const range = await store.read((tables) => tables.events.range());
    let after = from.after ?? range.last;
    if (after > range.last) {
      const message = `There is no event ${after} yet; the last is ${range.last}.`;
      throw new PlatformError('invalid_request', message, { details: { path: 'after' } });
    }
    while (!signal.aborted) {
      // Armed before the reading: an event committed in between must wake us.
      const next = events.next(signal);
      const position = after;
      const { found, last } = await store.read(async (tables) => {
        await checkKept(tables, position);
        const place = { teamId: caller.teamId, after: position, limit: followBatch };
        const found = await tables.events.list({ ...place, ...(from.sandboxId && { sandboxId: from.sandboxId }) });
        return { found, last: (await tables.events.range()).last };
      });
      for (const event of found) {
        after = event.sequence;
        yield eventViewOf(event);
        if (signal.aborted) return;
      }
      if (found.length === followBatch) continue;
      // Past everybody else's events too: that those are dropped one day is no loss to this reader.
      after = last;
      await next;
    }
  }
}

async function checkKept(tables: Readers, after: number): Promise<void> {
  const { first } = await tables.events.range();
  if (after + 1 >= first) return;
  const message = `Events before ${first} are no longer kept.`;
  throw new PlatformError('output_dropped', message, { details: { first } });
}

export function eventViewOf(event: EventRecord): EventView {
  return {
    sequence: event.sequence,
    kind: event.kind,
    sandboxId: event.sandboxId,
    at: new Date(event.atMs).toISOString(),
    data: { ...event.data },
  };
}
