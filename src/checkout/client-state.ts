/**
 * What a sandbox's record remembers of the checkouts that use it, as metadata under `atoll.checkout.`, so that a machine without a cache, or
 * another machine, finds it with one list call.
 *
 *   repository   must be equal
 *   config       must be equal
 *   ref          must be equal; a detached commit also matches when it is an ancestor of the present one
 *   worktrees    [machine, worktree] of whoever uses it: a machine of which another worktree is in it does not match
 *   definition   hash of the definition it was made from; only compared to warn
 *   setup        hash of the set-up steps that were done
 *   failure      why set-up did not end well; such a sandbox is not used again
 *
 * A record that cannot be decoded belongs to nobody; it is skipped and never an error.
 */
import { z } from 'zod';
import type { SandboxView } from '../sdk/index.ts';
import type { CheckoutIdentity } from './identity.ts';

const prefix = 'atoll.checkout.';
export const metadataKeys = {
  repository: `${prefix}repository`,
  config: `${prefix}config`,
  ref: `${prefix}ref`,
  worktrees: `${prefix}worktrees`,
  definition: `${prefix}definition`,
  setup: `${prefix}setup`,
  failure: `${prefix}failure`,
} as const;

/** So many machines share one at most. */
const worktreesMax = 24;
const tailMaxLength = 1_200;

const worktreesSchema = z.array(z.tuple([z.string(), z.string()])).max(worktreesMax);
const failureSchema = z.object({
  reason: z.enum(['failed', 'timed_out', 'cancelled']),
  step: z.string(),
  exitCode: z.int().nullable(),
  tail: z.string(),
});
export type SetupFailure = z.output<typeof failureSchema>;
export type Worktrees = z.output<typeof worktreesSchema>;

export interface ClientState {
  readonly repository: string;
  readonly configPath: string;
  readonly ref: string;
  readonly worktrees: Worktrees;
  readonly definition: string | null;
  readonly setup: string | null;
  readonly failure: SetupFailure | null;
}

export function readClientState(metadata: SandboxView['metadata']): ClientState | undefined {
  const repository = metadata[metadataKeys.repository];
  const configPath = metadata[metadataKeys.config];
  const ref = metadata[metadataKeys.ref];
  const worktrees = worktreesSchema.safeParse(parsed(metadata[metadataKeys.worktrees]));
  if (!repository || !configPath || !ref || !worktrees.success) return undefined;
  const failure = failureSchema.safeParse(parsed(metadata[metadataKeys.failure]));
  return {
    repository,
    configPath,
    ref,
    worktrees: worktrees.data,
    definition: metadata[metadataKeys.definition] ?? null,
    setup: metadata[metadataKeys.setup] ?? null,
    failure: failure.success ? failure.data : null,
  };
}

/** For a sandbox that this checkout makes. */
export function newClientState(
  identity: CheckoutIdentity,
  options: { readonly machineId: string; readonly definition: string },
): Record<string, string> {
  return {
    [metadataKeys.repository]: identity.repository,
    [metadataKeys.config]: identity.configPath,
    [metadataKeys.ref]: identity.ref,
    [metadataKeys.worktrees]: worktreesText([[options.machineId, identity.worktree]]),
    [metadataKeys.definition]: options.definition,
  };
}

/** For a sandbox that is made from that of a checkout and belongs to none. */
export function withoutClientState(metadata: SandboxView['metadata']): Record<string, string> {
  return Object.fromEntries(Object.entries(metadata).filter(([key]) => !key.startsWith(prefix)));
}

export function worktreesText(worktrees: Worktrees): string {
  return JSON.stringify(worktrees.slice(-worktreesMax));
}

export function failureText(failure: SetupFailure): string {
  return JSON.stringify({ ...failure, step: failure.step.slice(0, 200), tail: failure.tail.slice(-tailMaxLength) });
}

/** What the list call filters by; the rest is decided here. */
export function listFilter(identity: CheckoutIdentity): Record<string, string> {
  return { [metadataKeys.repository]: identity.repository, [metadataKeys.config]: identity.configPath };
}

/** Whether this worktree may use it, as far as worktrees go. */
export function admitsWorktree(state: ClientState, machineId: string, worktree: string): boolean {
  return state.worktrees.every(([machine, other]) => machine !== machineId || other === worktree);
}

export function hasWorktree(state: ClientState, worktree: string): boolean {
  return state.worktrees.some(([, known]) => known === worktree);
}

function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}
