/** Changes below a directory, in the words of the agent. One of ours may be several of its: a new file that holds something was also written. */
import { posix } from 'node:path';
import { isPlatformError } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import type { Entries } from './entries.ts';
import { EnvdError } from './envd-error.ts';
import type { Message } from './messages.ts';

export interface WatchWanted {
  readonly path: string;
  readonly recursive: boolean;
  readonly includeEntry: boolean;
}

type Kind = 'CREATE' | 'WRITE' | 'REMOVE' | 'RENAME';

/** First `armed`: what happens from then on is told. */
export async function* eventsBelow(
  { files, entries }: { readonly files: ControlPort['files']; readonly entries: Entries },
  sandbox: EnvdSandbox,
  wanted: WatchWanted,
  signal: AbortSignal,
): AsyncGenerator<'armed' | Message, void> {
  const { path: directory, includeEntry } = wanted;
  const query = { path: directory, recursive: wanted.recursive ? 'true' : 'false' } as const;
  const eventOf = async (kind: Kind, path: string): Promise<Message> => {
    const isThere = kind === 'CREATE' || kind === 'WRITE';
    const entry = includeEntry && isThere ? await entries.get(sandbox, path).catch(() => undefined) : undefined;
    const name = posix.relative(directory, path) || '.';
    return { name, type: `EVENT_TYPE_${kind}`, ...(entry !== undefined && { entry }) };
  };
  const changes = files.watch(sandbox.caller, sandbox.sandboxId, {}, query, signal);
  for await (const { kind, path = directory, from = directory } of untilGone(changes, () =>
    entries.find(sandbox, directory),
  )) {
    if (kind === 'armed') yield 'armed';
    else if (kind === 'modified') yield await eventOf('WRITE', path);
    else if (kind === 'deleted') yield await eventOf('REMOVE', path);
    else if (kind === 'overflow') throw new EnvdError('resource_exhausted', 'Too much changed at once; some is lost.');
    else if (kind === 'moved') {
      yield await eventOf('RENAME', from);
      yield await eventOf('CREATE', path);
    } else {
      yield await eventOf('CREATE', path);
      const found = await entries.find(sandbox, path).catch(() => undefined);
      if (found?.type === 'file' && found.sizeBytes > 0) yield await eventOf('WRITE', path);
    }
  }
}

/** A watch breaks off with what is watched, which is its end, or with the sandbox, which looking tells. */
async function* untilGone<Event>(
  events: AsyncIterable<Event>,
  look: () => Promise<unknown>,
): AsyncGenerator<Event, void> {
  try {
    yield* events;
  } catch (error) {
    if (!isPlatformError(error, 'sandbox_unavailable') || (await look()) !== undefined) throw error;
  }
}
