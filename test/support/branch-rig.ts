/** What tests of branches on a node have in common: a sandbox whose commands can be seen to move, and orders for it. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'vitest';
import {
  type CheckpointId,
  type NodeApi,
  type NodeCheckpoint,
  type NodeSandbox,
  newId,
  type SandboxSettings,
} from '../../src/protocol/index.ts';
import { patience } from './crashes.ts';
import { lifeOf, plainSettings, run } from './node-orders.ts';

/** What a shell command prints. */
export async function sh(node: NodeApi, sandbox: NodeSandbox, command: string): Promise<string> {
  const { stdout, stderr } = await run(node, sandbox, ['sh', '-c', command]);
  return `${stdout}${stderr}`;
}

export async function startCommand(node: NodeApi, sandbox: NodeSandbox, command: string): Promise<void> {
  await node.startProcess({
    ...{ ...lifeOf(sandbox), processId: newId('process'), name: null, leaseToken: null, command, cwd: null },
    ...{ env: {}, user: null, stdinOpen: false, timeoutMs: null, graceMs: 0, keepBytes: 64 * 1024 },
    autoCleanup: false,
  });
}

/** Appends the same counter to two files for ever, one after the other. */
export async function startCounting(node: NodeApi, sandbox: NodeSandbox): Promise<void> {
  await startCommand(
    node,
    sandbox,
    'i=0; while :; do i=$((i+1)); echo $i >> /root/first; echo $i >> /root/second; done',
  );
  await expect.poll(() => countOf(node, sandbox), patience).toBeGreaterThan(10);
}

export async function countOf(node: NodeApi, sandbox: NodeSandbox, file = 'second'): Promise<number> {
  return Number(await sh(node, sandbox, `cat /root/${file} 2>/dev/null | wc -l`));
}

/** What was started with `startCounting` moves. */
export async function expectMoving(node: NodeApi, sandbox: NodeSandbox): Promise<void> {
  const before = await countOf(node, sandbox);
  await expect.poll(() => countOf(node, sandbox), patience).toBeGreaterThan(before);
}

export function checkpointOf(
  node: NodeApi,
  sandbox: NodeSandbox,
  checkpointId: CheckpointId = newId('checkpoint'),
): Promise<NodeCheckpoint> {
  return node.branches.checkpoint({ ...lifeOf(sandbox), checkpointId, leaseToken: null });
}

/** An order under the next version. */
export function nextOrder(sandbox: NodeSandbox, settings: Partial<SandboxSettings> = {}) {
  return { ...lifeOf(sandbox), version: sandbox.version + 1, settings: { ...plainSettings, ...settings } };
}

export function restoreOrder(sandbox: NodeSandbox, { checkpointId }: Pick<NodeCheckpoint, 'checkpointId'>) {
  return { ...nextOrder(sandbox), generation: sandbox.generation + 1, checkpointId };
}

/** What the storage of a node has on disk: names of layers, writable layers, and what is half-made or half-removed. */
export async function storedIn(dataDirectory: string) {
  const storage = join(dataDirectory, 'storage');
  const root = (await readdir(storage)).includes('pool') ? join(storage, 'pool') : storage;
  const names = async (kind: string) => (await readdir(join(root, kind))).sort();
  return {
    layers: await names('layers'),
    writables: await names('writable'),
    unfinished: [...(await names('making')), ...(await names('trash'))],
  };
}

/** The writable layer that a sandbox's record names. */
export async function writableOf(dataDirectory: string, { mark }: NodeSandbox): Promise<string> {
  const text = await readFile(join(dataDirectory, 'sandboxes', mark.sandboxId, 'record.json'), 'utf8');
  return (JSON.parse(text) as { writable: string }).writable;
}
