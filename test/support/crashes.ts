/**
 * What tests of crashes and the soak have in common: calls that are cut off, repeats that are asked for, and a look at every side of
 * the truth.
 */
import { deepEqual, ok } from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { NodeClient } from '../../src/node/index.ts';
import { isPlatformError, type NodeSandbox, type SandboxId, type SandboxView } from '../../src/protocol/index.ts';
import { Atoll, Sandbox } from '../../src/sdk/index.ts';
import type { Daemon, Platform } from './platform.ts';

/** For a machine that does ten other things; what is waited for comes within moments on an idle one. */
export const patience = { timeout: 30_000, interval: 50 } as const;

/** Reconcile comes round often, so that tests do not wait for it. */
export const briskSettings = { reconcileIntervalMs: 300 } as const;

/** A client that never repeats by itself: what a crash does to one request is seen as it is. */
export function impatient(platform: Platform): Atoll {
  return new Atoll({ url: platform.server.url, apiKey: platform.key, retries: 0 });
}

/** The error of a call that must fail, when the process that should have died over it is gone. */
export async function interrupted(daemon: Daemon, call: Promise<unknown>): Promise<{ code: string }> {
  const error = await call.then(
    () => {
      throw new Error('The call was answered, though its process should have died.');
    },
    (error: unknown) => error,
  );
  await daemon.died;
  if (!isPlatformError(error)) throw error;
  return { code: error.code };
}

/** Asks again while nobody could answer, as a caller with an idempotency key would. */
export async function untilAnswered<Result>(ask: () => Promise<Result>): Promise<Result> {
  const limit = performance.now() + patience.timeout;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      const isOpen = isPlatformError(
        error,
        'server_unreachable',
        'outcome_unknown',
        'node_unavailable',
        'sandbox_unavailable',
        'shutting_down',
      );
      if (!isOpen || performance.now() > limit) throw error;
      await delay(patience.interval);
    }
  }
}

/** A node that has just been started may not be reached yet: that is no answer to what a test asks of it. */
export async function untilAdmitted<Result>(ask: () => Promise<Result>): Promise<Result> {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!isPlatformError(error, 'node_unavailable', 'sandbox_unavailable')) throw error;
    }
  }
}

/** Looks again until the look throws nothing. */
export async function eventually<Result>(look: () => Promise<Result>): Promise<Result> {
  const limit = performance.now() + patience.timeout;
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (performance.now() > limit) throw error;
      await delay(patience.interval);
    }
  }
}

/** Calls the node itself, past the control plane. Needs the node in a process of its own. */
export async function withNode<Result>(
  platform: Platform,
  work: (node: NodeClient) => Promise<Result>,
): Promise<Result> {
  if (platform.node === undefined) throw new Error('The node is not a process of its own.');
  const token = (await readFile(join(platform.dataDirectory, 'far', 'node-token'), 'utf8')).trim();
  const node = new NodeClient({ url: platform.node.url, token });
  try {
    return await work(node);
  } finally {
    node.close();
  }
}

/** Waits until record, list, node and the file inside tell the same, and returns that. */
export function agreed(platform: Platform, sandboxId: string): Promise<{ view: SandboxView; node: NodeSandbox }> {
  return eventually(async () => {
    const view = await platform.client.sandboxes.get(sandboxId);
    const listed = (await platform.client.sandboxes.list()).items.find(({ id }) => id === sandboxId);
    const node = await withNode(platform, (api) => api.findSandbox(sandboxId as SandboxId));
    if (node === undefined) throw new Error(`The node does not have ${sandboxId}.`);
    deepEqual(listed, view);
    const { state, generation, metadata, metadataVersion, expiresAt } = view;
    const { settings } = node;
    deepEqual(
      { state, generation, metadata, metadataVersion, expiresAt },
      {
        // After a pause of the files no process is left, as after a stop.
        state: view.paused?.mode === 'files' && node.life.kind === 'ended' ? 'paused' : stateOf(node.life.kind),
        generation: node.generation,
        // What has no process is given its settings when its next life begins.
        metadata: view.paused?.mode === 'files' ? metadata : settings.metadata,
        metadataVersion: view.paused?.mode === 'files' ? metadataVersion : settings.metadataVersion,
        expiresAt:
          settings.expiresAtMs === null || view.paused?.mode === 'files'
            ? null
            : new Date(settings.expiresAtMs).toISOString(),
      },
    );
    const inside = { version: metadataVersion, metadata };
    if (state === 'running') deepEqual(await fileInside(platform, sandboxId), inside);
    return { view, node };
  });
}

function stateOf(life: NodeSandbox['life']['kind']): 'running' | 'paused' | 'stopped' {
  return life === 'ended' ? 'stopped' : life;
}

/** As the sandbox itself sees it. Read on the node, past a lease that somebody may hold. */
async function fileInside(platform: Platform, sandboxId: string): Promise<unknown> {
  const path = join(platform.nodeDirectory, 'sandboxes', sandboxId, 'shared', 'metadata.json');
  return JSON.parse(await readFile(path, 'utf8'));
}

/** Removes what a failed test left, so that the next one begins with nothing. */
export async function removeSandboxes(platform: Platform): Promise<void> {
  if (platform.node !== undefined && hasEnded(platform.node)) await platform.startNode();
  if (hasEnded(platform.server)) await platform.startServer();
  for await (const view of platform.client.sandboxes.iterate()) {
    const sandbox = new Sandbox(platform.client.connection, view);
    await sandbox.delete({ force: true });
  }
}

function hasEnded({ child }: Daemon): boolean {
  return child.exitCode !== null || child.signalCode !== null;
}

/** Waits until the node and this machine have these sandboxes and nothing else of the platform. */
export async function expectOnly(platform: Platform, ids: readonly string[]): Promise<void> {
  const sorted = [...ids].sort();
  await eventually(async () => {
    const recorded: string[] = [];
    for await (const { id } of platform.client.sandboxes.iterate()) recorded.push(id);
    deepEqual(recorded.sort(), sorted);
    for (const [name, wanted] of [
      ['sandboxes', sorted],
      ['making', []],
      ['trash', []],
    ] as const) {
      deepEqual((await readdir(join(platform.nodeDirectory, name))).sort(), wanted, `left in ${name}`);
    }
    for (const path of await groupsOf(platform)) ok(sorted.includes(basename(path)), `left: ${path}`);
  });
}

/** The control groups that its sandboxes have now. */
export async function groupsOf(platform: Platform): Promise<string[]> {
  const directory = await realpath(platform.nodeDirectory);
  const name = `atoll-${createHash('sha256').update(directory).digest('hex').slice(0, 16)}`;
  const found: string[] = [];
  for (const top of ['', ...(await directoriesIn('/sys/fs/cgroup'))]) {
    const root = join('/sys/fs/cgroup', top, name);
    for (const child of await directoriesIn(root)) found.push(join(root, child));
  }
  return found;
}

async function directoriesIn(path: string): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  return entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
}
