/** Records and sandboxes that no longer fit: a store put back to an earlier day, a record on the node that cannot be read. */
import { copyFile, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, vi } from 'vitest';
import { agreed, expectOnly, groupsOf, impatient, interrupted, patience, removeSandboxes } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: { reconcileIntervalMs: 300, youngMs: 0 } });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

const storeFile = () => join(platform.dataDirectory, 'server', 'atoll.db');

/** A copy of the store as it is now, as a backup would have it. */
async function backUp(): Promise<void> {
  platform.server.child.kill('SIGTERM');
  await platform.server.died;
  await copyFile(storeFile(), `${storeFile()}.copy`);
  await platform.startServer();
}

async function putBack(): Promise<void> {
  await platform.killServer();
  for (const tail of ['-wal', '-shm']) await rm(storeFile() + tail, { force: true });
  await copyFile(`${storeFile()}.copy`, storeFile());
  await platform.startServer();
}

test('K44: after the store was put back to an earlier day, a sandbox made since is adopted as it is', async () => {
  await backUp();
  const box = await platform.client.sandboxes.create({ name: 'newer', metadata: { made: 'later' } });
  await box.exec('echo kept > /root/file');
  await box.patchMetadata({ patched: 'too' });
  await putBack();

  const view = await vi.waitFor(() => platform.client.sandboxes.get(box.id), patience);
  expect(view).toMatchObject({
    name: 'newer',
    state: 'running',
    generation: 1,
    metadata: { made: 'later', patched: 'too' },
    metadataVersion: 2,
  });
  const adopted = await platform.client.sandboxes.connect(box.id);
  expect((await adopted.exec('cat /root/file')).stdout).toBe('kept\n');
  await adopted.patchMetadata({ patched: 'again' });
  await agreed(platform, box.id);
});

test('K44: after the store was put back, what changed since is taken from the node', async () => {
  const box = await platform.client.sandboxes.create({ metadata: { day: 'first' } });
  await backUp();
  const same = await platform.client.sandboxes.connect(box.id);
  await same.patchMetadata({ day: 'second' });
  await same.update({ metadata: { day: 'third' }, expiresInMs: 3600 * 1000 });
  await putBack();
  const { view } = await agreed(platform, box.id);
  expect(view).toMatchObject({ metadata: { day: 'third' }, metadataVersion: 3 });
  expect(view.expiresAt).not.toBeNull();
});

test('K17: K44: after the store was put back to an earlier life, the sandbox can be used again or deleted', async () => {
  const box = await platform.client.sandboxes.create();
  await backUp();
  const same = await platform.client.sandboxes.connect(box.id);
  await same.stop({ graceMs: 0 });
  await same.start();
  await putBack();

  const { view } = await agreed(platform, box.id);
  expect(view).toMatchObject({ state: 'running', generation: 2 });
  const again = await platform.client.sandboxes.connect(box.id);
  expect((await again.exec(['echo', 'usable'])).stdout).toBe('usable\n');
  await again.delete();
  await expectOnly(platform, []);
});

test('K44: a sandbox whose record on the node cannot be read is quarantined, listed and left running', async () => {
  const box = await platform.client.sandboxes.create();
  const directory = join(platform.nodeDirectory, 'sandboxes', box.id);
  const path = join(directory, 'record.json');
  const record = await readFile(path, 'utf8');
  await platform.killNode();
  await writeFile(path, record.slice(0, 50));
  try {
    await platform.startNode();
    await vi.waitFor(async () => {
      const { quarantined } = await platform.client.reconcile({ dryRun: true });
      expect(quarantined).toMatchObject([{ directory }]);
    }, patience);
    const printed = await platform.cli('reconcile', '--dry-run');
    expect(printed).toMatchObject({ code: 0 });
    expect(printed.stdout).toContain(directory);
    expect(await groupsOf(platform)).not.toEqual([]);
  } finally {
    await platform.killNode();
    await writeFile(path, record);
    await platform.startNode();
  }

  // With its record back it is what it was, though it was taken for lost meanwhile.
  const { view } = await agreed(platform, box.id);
  expect(view).toMatchObject({ state: 'running', generation: 1 });
  const found = await platform.client.sandboxes.connect(box.id);
  expect((await found.exec(['echo', 'usable'])).stdout).toBe('usable\n');
});

test('K47: a server answers for the sandboxes it has found again while it is still busy with others', async () => {
  const box = await platform.client.sandboxes.create({ name: 'found' });
  const other = await platform.client.sandboxes.create({ name: 'busy' });
  await platform.restartServer('after-store-deleting=crash');
  await interrupted(platform.server, (await impatient(platform).sandboxes.connect(other.id)).delete());
  // Far longer than this test: what is answered is answered meanwhile.
  await platform.startServer('after-delete-on-node=delay:600000');

  try {
    const found = await platform.client.sandboxes.connect(box.id);
    expect((await found.exec(['echo', 'usable'])).stdout).toBe('usable\n');
    await found.patchMetadata({ answered: 'meanwhile' });
    await (await platform.client.sandboxes.create({ name: 'another' })).exec(['true']);
    expect((await fetch(`${platform.server.url}/readyz`)).status).toBe(503);
    expect((await platform.client.sandboxes.get(other.id)).state).toBe('deleting');
  } finally {
    await platform.restartServer();
  }
  const [another] = (await platform.client.sandboxes.list({ namePrefix: 'another' })).items;
  await expectOnly(platform, [box.id, another!.id]);
});
