/** Data directories that are not as one would like them: deep, full, in use, or of another version. */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, mkdir, mkdtemp, readdir, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, expect } from 'vitest';
import { SandboxNode } from '../../src/node/index.ts';
import { isPlatformError, type NodeSandbox, newId } from '../../src/protocol/index.ts';
import { nodeOptions, openDirectNode } from '../support/node-harness.ts';
import { createOrder, run } from '../support/node-orders.ts';
import { requires, testWith } from '../support/requires.ts';
import { groupNameOf, hashOf } from '../support/run-leftovers.ts';

const test = testWith(requires.linux, requires.root, requires.cgroups);
const sh = promisify(execFile);
let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atoll-directory-'));
});
afterEach(() => rm(root, { recursive: true }));

test('a path far longer than a socket address works', async () => {
  const dataDirectory = join(root, 'a'.repeat(100), 'b'.repeat(100));
  await mkdir(dataDirectory, { recursive: true });
  const node = await SandboxNode.open({ ...nodeOptions, dataDirectory });
  try {
    const sandbox = await node.createSandbox(createOrder());
    expect((await run(node, sandbox, ['echo', 'here'])).stdout).toBe('here\n');
    await node.deleteSandbox({ sandboxId: sandbox.mark.sandboxId, generation: 1 });
  } finally {
    await node.close();
  }
});

test('a second node on the directory is refused and changes nothing; after a close it may have it', async () => {
  const harness = await openDirectNode();
  try {
    const { dataDirectory } = harness;
    const second = SandboxNode.open({ ...nodeOptions, dataDirectory });
    await expect(second).rejects.toMatchObject({ name: 'DirectoryInUse', pid: process.pid });
    await harness.restart();
  } finally {
    await harness.close();
  }
});

test('a directory of a newer version is refused by name and left as it is', async () => {
  const text = JSON.stringify({ format: 99, nodeId: newId('node') });
  await writeFile(join(root, 'node.json'), text);
  const opened = SandboxNode.open({ ...nodeOptions, dataDirectory: root });
  await expect(opened).rejects.toThrow('newer version');
  expect(await readdir(root)).toEqual(['node.json']);
});

test('a full disk refuses the next sandbox, keeps the others, and leaves nothing half-made', async () => {
  const small = join(root, 'small');
  await mkdir(small);
  // Inodes run out before bytes: enough for the node's spare directories and a few sandboxes.
  await sh('mount', ['-t', 'tmpfs', '-o', 'nr_inodes=400', 'tmpfs', small]);
  const layersDirectory = nodeOptions.layersDirectory ?? join(root, 'layers');
  const node = await SandboxNode.open({ ...nodeOptions, layersDirectory, dataDirectory: join(small, 'node') });
  try {
    const made: NodeSandbox[] = [];
    let refusal: unknown;
    while (refusal === undefined && made.length < 60) {
      await node.createSandbox(createOrder()).then(
        (sandbox) => made.push(sandbox),
        (error: unknown) => {
          refusal = error;
        },
      );
    }
    expect(refusal).toMatchObject({ code: 'insufficient_storage' });
    expect(made.length).toBeGreaterThan(0);
    expect(await readdir(join(small, 'node/making'))).toEqual([]);
    expect((await run(node, made[0]!, ['echo', 'alive'])).stdout).toBe('alive\n');
    const [first] = made;
    const settings = { ...first!.settings, metadata: { a: '1' } };
    const life = { sandboxId: first!.mark.sandboxId, generation: 1 };
    const applied = await node.applySettings({ ...life, version: 2, settings }).catch((error: unknown) => error);
    // Either there was room for one more file, or nothing was changed.
    const version = isPlatformError(applied, 'insufficient_storage') ? 1 : 2;
    expect((await node.findSandbox(life.sandboxId))?.version).toBe(version);
    for (const { mark } of made) await node.deleteSandbox({ sandboxId: mark.sandboxId, generation: 1 });
    expect((await node.createSandbox(createOrder())).life.kind).toBe('running');
    for (const { mark } of (await node.inventory()).sandboxes) {
      await node.deleteSandbox({ sandboxId: mark.sandboxId, generation: 1 });
    }
  } finally {
    await node.close();
    await sh('umount', [small]);
  }
});

test('a node that holds as many sandboxes as it may takes no more', async () => {
  const harness = await openDirectNode({ capacity: 2 });
  const { node } = harness;
  try {
    const made = await Promise.allSettled(Array.from({ length: 5 }, () => node.createSandbox(createOrder())));
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(2);
    await expect(node.createSandbox(createOrder())).rejects.toMatchObject({ code: 'limit_exceeded' });
  } finally {
    await harness.close();
  }
});

test('a place in memory that anybody may write to is not used; one of our own is, and is gone with the last sandbox', async () => {
  const harness = await openDirectNode();
  const memory = join('/dev/shm', groupNameOf(hashOf(harness.dataDirectory)));
  const sharedOf = async () => {
    const sandbox = await harness.node.createSandbox(createOrder({ settings: { metadata: { seen: 'inside' } } }));
    expect((await run(harness.node, sandbox, ['cat', '/run/atoll/metadata.json'])).stdout).toContain('"seen":"inside"');
    const { sandboxId } = sandbox.mark;
    const path = await realpath(join(harness.dataDirectory, 'sandboxes', sandboxId, 'shared'));
    await harness.node.deleteSandbox({ sandboxId, generation: 1 });
    return path;
  };
  try {
    expect(dirname(await sharedOf())).toBe(memory);
    await harness.restart(async () => {
      expect(existsSync(memory)).toBe(false);
      await mkdir(memory);
      await chmod(memory, 0o777);
    });
    expect(await sharedOf()).toContain(harness.dataDirectory);
    expect(await readdir(memory)).toEqual([]);
  } finally {
    await rm(memory, { recursive: true, force: true });
    await harness.close();
  }
});
