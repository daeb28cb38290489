/** A command on the checkout that we stand in: finds it, reads its definition, opens the cache, and talks to the person on stderr. */
import { homedir, userInfo } from 'node:os';
import { join } from 'node:path';
import {
  type ApplyOptions,
  Cache,
  CheckoutResolver,
  type CycleOptions,
  type Definition,
  type FoundCheckout,
  findCheckout,
  type HolderView,
  type LockOwner,
  loadDefinition,
  type SyncPort,
} from '../checkout/index.ts';
import type { Atoll } from '../sdk/index.ts';
import { openSync } from './checkout-sync.ts';
import type { CommandCall } from './command-call.ts';
import { printable, readableSpan } from './readable.ts';
import { SyncProgressLine } from './sync-progress.ts';

export interface CheckoutOptions {
  readonly config?: string;
  readonly verbose?: boolean;
  readonly wait?: boolean | number;
  readonly sync?: boolean;
}

export interface OpenCheckout {
  readonly client: Atoll;
  readonly cache: Cache;
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly resolver: CheckoutResolver;
  readonly stateDirectory: string;
  sync(): Promise<SyncPort>;
}

const leaseWaitMs = 30 * 60_000;
/** Of a sandbox that is being made or started. */
export const readyTimeoutMs = 120_000;

export async function openCheckoutHere(
  call: CommandCall<CheckoutOptions>,
  options: { readonly signal?: AbortSignal } = {},
): Promise<OpenCheckout> {
  const { io } = call;
  const { ATOLL_MACHINE_ID: machineId } = io.env;
  const { config } = call.options;
  const found = await findCheckout({
    cwd: io.cwd,
    env: io.env,
    ...(config !== undefined && { config }),
    ...(machineId !== undefined && machineId !== '' && { machineId }),
  });
  const definition = loadDefinition(found.root, found.identity.configPath);
  const cache = openCache(call);
  const client = await call.client();
  const resolver = new CheckoutResolver({
    client,
    cache,
    found,
    definition,
    nowMs: () => io.nowMs(),
    say: (text) => say(call, text),
    onLockWait: (owner) => tellLock(call, owner),
    ...options,
  });
  const directory = stateDirectory(call);
  return {
    client,
    cache,
    found,
    definition,
    resolver,
    stateDirectory: directory,
    sync: () => openSync({ found, definition, stateDirectory: directory, env: io.env }),
  };
}

export function openCache(call: CommandCall): Cache {
  const { io } = call;
  return Cache.open({
    path: join(stateDirectory(call), 'checkouts', 'cache.db'),
    nowMs: () => io.nowMs(),
    owner: { pid: io.pid, command: `atoll ${call.commandName}` },
    warn: (text) => say(call, text),
  });
}

/** How the parts of a cycle speak and wait, for every command that runs one. */
export function cycleOptions(
  call: CommandCall<CheckoutOptions>,
  checkout: OpenCheckout,
  given: { readonly reason: string; readonly sync: SyncPort | undefined; readonly signal?: AbortSignal },
): CycleOptions {
  const { io } = call;
  const { wait = true, verbose = false } = call.options;
  const { client, resolver, found, definition } = checkout;
  const progressLine = new SyncProgressLine(io, { isQuiet: call.isJson });
  return {
    client,
    resolver,
    found,
    definition,
    ...given,
    holder: holderName(call),
    waitMs: wait === false ? 0 : wait === true ? leaseWaitMs : wait,
    readyTimeoutMs,
    nowMs: () => io.nowMs(),
    say: (text) => say(call, text),
    onWait: (holder) => {
      if (!call.isJson) say(call, waitingText(holder));
    },
    onLeaseStep: (step) => {
      if (verbose) say(call, `lease ${step}`);
    },
    onProgress: (progress) => progressLine.show(progress),
    onSetUpOutput: (bytes) => void io.stderr.write(bytes),
  };
}

export function waitingText({ holder, heldForMs, reason }: HolderView): string {
  return `Waiting: held by ${holder} for ${readableSpan(heldForMs)}: ${reason}`;
}

/** Names and reasons come from others: line by line, nothing of them moves the cursor or colours the screen. */
export function say(call: CommandCall, text: string): void {
  void call.note(`atoll: ${text.split('\n').map(printable).join('\n')}`);
}

export function stateDirectory(call: CommandCall): string {
  const { ATOLL_STATE: own, XDG_STATE_HOME: xdg, HOME: home } = call.io.env;
  if (own !== undefined && own !== '') return own;
  return join(xdg !== undefined && xdg !== '' ? xdg : join(home ?? homedir(), '.local', 'state'), 'atoll');
}

function holderName(call: CommandCall): string {
  const user = call.io.env['USER'] ?? userInfo().username;
  return `${user} (pid ${call.io.pid})`;
}

function tellLock(call: CommandCall, owner: LockOwner | undefined): void {
  if (call.isJson) return;
  const who = owner === undefined ? 'another atoll' : `${owner.command} (pid ${owner.pid})`;
  say(call, `Waiting for ${who}, which makes a sandbox.`);
}

/** For what was applied to this machine and what takes it back. */
export function applyOptions(call: CommandCall, waitMs?: number): ApplyOptions {
  const { io } = call;
  return {
    stateDirectory: stateDirectory(call),
    env: io.env,
    nowMs: () => io.nowMs(),
    command: `atoll ${call.commandName}`,
    ...(waitMs !== undefined && { waitMs }),
    onWait: (owner) => {
      if (!call.isJson)
        say(call, `Waiting for ${owner === undefined ? 'another atoll' : `${owner.command} (pid ${owner.pid})`}.`);
    },
  };
}
