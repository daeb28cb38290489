/**
 * Makes the sandbox of a checkout. The lease on the creation keeps a reset whole; the unique name decides between whoever comes here without
 * it, such as after it was lost.
 */
import { isPlatformError, PlatformError } from '../protocol/index.ts';
import type { Atoll, Sandbox } from '../sdk/index.ts';
import { admitsWorktree, newClientState, readClientState } from './client-state.ts';
import type { Definition } from './definition.ts';
import type { FoundCheckout } from './find-checkout.ts';
import { sandboxName, shortHash } from './identity.ts';
import { endSandbox } from './liveness.ts';

export interface CreationOptions {
  readonly client: Atoll;
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly say: (text: string) => void;
  readonly signal?: AbortSignal;
}

/** Worktrees of one machine on one branch. */
const placesMax = 16;
const attemptsMax = 20;
const waitMs = 120_000;
const endTimeoutMs = 60_000;
const pauseMs = 250;

/** `work` gets who owns what is made: a user, or a key without one. */
export async function withCreationRight<Result>(
  options: CreationOptions,
  work: (owner: string) => Promise<Result>,
): Promise<Result> {
  const { client, found, signal } = options;
  const { userId, id } = await client.whoAmI(signal && { signal });
  const owner = userId ?? id;
  const { repository, ref, configPath } = found.identity;
  const resource = `name:checkout/${shortHash('creation', repository, ref, configPath, owner)}`;
  const wanted = {
    resources: [resource],
    holder: `atoll checkout ${found.root}`.slice(0, 100),
    reason: 'create',
    waitMs,
  };
  return await client.leases.hold({ ...wanted, ...(signal && { signal }) }, () => work(owner));
}

/** The caller has the right to it. */
export async function createSandbox(options: CreationOptions, owner: string): Promise<Sandbox> {
  const { client, found, say } = options;
  const { identity, machineId } = found;
  let place = 0;
  for (let attempt = 0; attempt < attemptsMax && place < placesMax; attempt++) {
    const sandbox = await getOrCreate(options, sandboxName(identity, { owner, place }));
    if (sandbox === undefined) {
      await client.connection.clock.wait(pauseMs, options.signal);
      options.signal?.throwIfAborted();
      continue;
    }
    const state = readClientState(sandbox.metadata);
    if (sandbox.state === 'failed' || state?.failure) {
      say(`The sandbox ${sandbox.id} is not used again: ${sandbox.view.reason ?? 'its set-up failed'}.`);
      await endSandbox(client, sandbox.id, { timeoutMs: endTimeoutMs });
    } else if (state === undefined || !admitsWorktree(state, machineId, identity.worktree)) {
      place++;
    } else {
      return sandbox;
    }
  }
  throw new PlatformError('limit_exceeded', 'No place for another sandbox of this repository and branch was found.');
}

/** Nothing: the name belongs to one that is being deleted. */
async function getOrCreate(options: CreationOptions, name: string): Promise<Sandbox | undefined> {
  const { client, found, definition, signal } = options;
  const { template, limits, expires, hash } = definition;
  const { memory, cpus, processes } = limits;
  try {
    const sandbox = await client.sandboxes.getOrCreate({
      name,
      template,
      metadata: newClientState(found.identity, { machineId: found.machineId, definition: hash }),
      limits: {
        ...(memory !== undefined && { memoryBytes: memory }),
        ...(cpus !== undefined && { cpuMillis: Math.round(cpus * 1_000) }),
        ...(processes !== undefined && { processes }),
      },
      expiresInMs: expires === 'never' ? null : expires,
      ...(signal && { signal }),
    });
    return sandbox.state === 'deleting' ? undefined : sandbox;
  } catch (error) {
    if (isPlatformError(error, 'name_taken')) return undefined;
    throw error;
  }
}
