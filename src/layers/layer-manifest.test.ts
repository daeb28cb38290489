import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { newId } from '../protocol/index.ts';
import { newManifest, newRecord, readManifest, readRecord, writeManifest, writeRecord } from './layer-manifest.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-manifest-'));
});
afterEach(() => rm(directory, { recursive: true }));

const manifest = newManifest({
  id: newId('layer'),
  driver: 'btrfs',
  base: 'host-0123',
  parents: [newId('layer')],
  flattens: null,
  createdAtMs: 1_000,
});

test('a manifest is read as it was written, and only for its own layer', async () => {
  await writeManifest(directory, manifest);
  expect(await readManifest(directory, manifest.id)).toEqual(manifest);
  await expect(readManifest(directory, newId('layer'))).rejects.toThrow(manifest.id);
});

test('a manifest that lost or changed any byte is refused', async () => {
  await writeManifest(directory, manifest);
  const path = join(directory, 'manifest.json');
  const bytes = await readFile(path);
  for (let at = 0; at < bytes.length; at++) {
    await writeFile(path, bytes.subarray(0, at));
    await expect(readManifest(directory, manifest.id)).rejects.toThrow();
    const changed = Buffer.from(bytes);
    changed[at]! ^= 1;
    await writeFile(path, changed);
    await expect(readManifest(directory, manifest.id)).rejects.toThrow();
  }
});

test('a record can be replaced, and an unknown format is refused', async () => {
  const record = newRecord({ id: newId('writable'), base: 'host-0123', parents: [] });
  await writeRecord(directory, record);
  const moving = { ...record, movingTo: newId('layer') };
  await writeRecord(directory, moving);
  expect(await readRecord(directory, record.id)).toEqual(moving);
  await writeRecord(directory, { ...record, format: 2 as 1 });
  await expect(readRecord(directory, record.id)).rejects.toThrow();
});
