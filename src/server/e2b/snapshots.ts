/** E2B's snapshots are checkpoints here: named by their id, or by the name they were given, of which the newest counts. */
import type { Caller } from '../../control/index.ts';
import { type CheckpointId, isId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { E2bError } from './e2b-error.ts';

type Checkpoint = Awaited<ReturnType<ControlPort['checkpoints']['get']>>;

const namePattern = /^(?:[a-z0-9_-]+\/)?([a-z0-9_-]+)(?::([a-z0-9_.-]+))?$/;
const defaultTag = 'default';

/** As checkpoints carry it: without the namespace, and with the tag where it says something. */
export function snapshotName(text: string): string {
  const [, name, tag = defaultTag] = namePattern.exec(text) ?? [];
  if (name === undefined || text.length > 100)
    throw new E2bError(400, `'${text.slice(0, 100)}' is no name of a snapshot.`);
  return tag === defaultTag ? name : `${name}:${tag}`;
}

export function snapshotInfo({ id, name }: Checkpoint) {
  return { snapshotID: `${id}:${defaultTag}`, names: name === null ? [] : [name] };
}

/** The checkpoint that a snapshot's id or name means; undefined: there is none. */
export async function findSnapshot(
  control: ControlPort,
  caller: Caller,
  wanted: string,
): Promise<CheckpointId | undefined> {
  const [id = ''] = wanted.split(':');
  if (isId('checkpoint', id)) return id;
  if (!namePattern.test(wanted)) return undefined;
  const { items } = await control.checkpoints.list(caller, { name: snapshotName(wanted), limit: 10 });
  return items.find(({ state }) => state === 'ready')?.id;
}
