/**
 * The sandboxes of checkouts: what the server lists, joined with what is remembered here. One list call decides about all; only what is
 * remembered and was not in its answer is asked for by itself.
 *
 * An entry of the cache is dropped only when the server says that there is no such sandbox; what cannot be asked stays, as `unknown`.
 */
import { isPlatformError } from '../protocol/index.ts';
import type { Atoll, SandboxView } from '../sdk/index.ts';
import type { Cache } from './cache.ts';
import { type ClientState, metadataKeys, readClientState } from './client-state.ts';
import { livenessOf } from './liveness.ts';
import type { Session } from './session.ts';

export interface ListedSandbox {
  readonly id: string;
  /** Where it is, as that was given. */
  readonly serverUrl: string;
  readonly status: SandboxView['state'] | 'unknown';
  readonly repository: string;
  readonly ref: string;
  readonly configPath: string;
  /** Where its checkout is on this machine; null: it was not used from here. */
  readonly root: string | null;
  readonly createdAt: string | null;
  readonly expiresAt: string | null;
  readonly execCount: number;
  readonly lastExecAt: string | null;
  readonly holder: string | null;
}

type Listed = Omit<ListedSandbox, 'serverUrl'>;

const pageLimit = 1_000;
/** How long dropping what is gone may wait; a listing is not held up by a creation. */
const dropWaitMs = 50;

export async function listCheckouts(options: {
  readonly client: Atoll;
  readonly cache: Cache;
  /** Absent: of every repository. */
  readonly repository?: string;
}): Promise<readonly ListedSandbox[]> {
  const { client, cache, repository } = options;
  const serverUrl = client.connection.url;
  const isWanted = (of: string) => repository === undefined || of === repository;
  const sessions = cache.sessions(serverUrl).filter(({ identity }) => isWanted(identity.repository));
  const filter = repository === undefined ? {} : { metadata: { [metadataKeys.repository]: repository } };
  const listed: ListedSandbox[] = [];
  const seen = new Set<string>();
  for await (const view of client.sandboxes.iterate({ ...filter, mine: true, limit: pageLimit })) {
    const state = readClientState(view.metadata);
    if (state === undefined || view.state === 'deleting' || view.state === 'failed' || state.failure) continue;
    seen.add(view.id);
    const session = sessions.find(({ sandboxId }) => sandboxId === view.id);
    listed.push({ serverUrl, ...entryOf(view, state, session) });
  }
  const gone: Session[] = [];
  for (const session of sessions) {
    if (session.sandboxId === null || seen.has(session.sandboxId)) continue;
    const liveness = await livenessOf(client, session.sandboxId).catch(() => undefined);
    if (liveness?.kind === 'gone' || liveness?.kind === 'failed') gone.push(session);
    else listed.push({ serverUrl, ...entryOfSession(session, liveness?.sandbox.view) });
  }
  await drop(cache, gone);
  return listed;
}

async function drop(cache: Cache, gone: readonly Session[]): Promise<void> {
  if (gone.length === 0) return;
  try {
    await cache.withLock({ waitMs: dropWaitMs }, async (lock) => {
      for (const { key, sandboxId } of gone) if (lock.find(key)?.sandboxId === sandboxId) lock.remove(key);
    });
  } catch (error) {
    // The next listing does it.
    if (!isPlatformError(error, 'checkout_busy')) throw error;
  }
}

function entryOf(view: SandboxView, state: ClientState, session: Session | undefined): Listed {
  return {
    id: view.id,
    status: view.state,
    repository: state.repository,
    ref: state.ref,
    configPath: state.configPath,
    createdAt: view.createdAt,
    expiresAt: view.expiresAt,
    holder: holderOf(view),
    ...rememberedOf(session),
  };
}

function entryOfSession(session: Session, view: SandboxView | undefined): Listed {
  const { repository, ref, configPath } = session.identity;
  return {
    id: session.sandboxId ?? '',
    status: view?.state ?? 'unknown',
    repository,
    ref,
    configPath,
    createdAt: view?.createdAt ?? null,
    expiresAt: view?.expiresAt ?? null,
    holder: view === undefined ? null : holderOf(view),
    ...rememberedOf(session),
  };
}

function holderOf({ lease }: SandboxView): string | null {
  return lease === null ? null : `${lease.holder}: ${lease.reason}`;
}

function rememberedOf(session: Session | undefined) {
  const at = session?.lastExecMs ?? null;
  return {
    root: session?.root ?? null,
    execCount: session?.execCount ?? 0,
    lastExecAt: at === null ? null : new Date(at).toISOString(),
  };
}
