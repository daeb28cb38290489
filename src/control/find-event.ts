/** The event that tells what became of an operation that was interrupted: its first, as far back as events are kept, which is longer than keys are. */
import type { EventRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';

const pageSize = 1_000;

export async function findEvent(
  { store }: Pick<ControlContext, 'store'>,
  { teamId }: Pick<Caller, 'teamId'>,
  isWanted: (event: EventRecord) => boolean,
  afterSequence = 0,
): Promise<EventRecord | undefined> {
  for (let after = afterSequence; ; ) {
    const page = await store.read((tables) => tables.events.list({ teamId, after, limit: pageSize }));
    const found = page.find(isWanted);
    if (found !== undefined || page.length < pageSize) return found;
    after = page.at(-1)?.sequence ?? after;
  }
}
