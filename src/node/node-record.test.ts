import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createOrder } from '../../test/support/node-orders.ts';
import { newId } from '../protocol/index.ts';
import { type NodeRecord, parseRecord, prepareRecord, readRecord, viewOf, writeRecord } from './node-record.ts';

const { mark, spec, settings } = createOrder({ settings: { metadata: { a: 'ü' }, expiresAtMs: 5 } });
const record: NodeRecord = {
  format: 2,
  ...{ mark, spec, settings },
  generation: 2,
  version: 7,
  deadlineBootMs: 99,
  layers: ['host-0123'],
  usrLayers: ['/usr'],
  writable: newId('writable'),
  fromCheckpoint: null,
  slot: 12,
  bootId: 'boot',
  life: { kind: 'ended', reason: 'expired', atMs: 3 },
};
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-record-'));
});
afterEach(() => rm(directory, { recursive: true }));

test('a record is read as it was written, and nothing else is left beside it', async () => {
  await writeRecord(directory, { ...record, version: 6 });
  await writeRecord(directory, record);
  expect(await readRecord(directory)).toEqual(record);
  expect(await readdir(directory)).toEqual(['record.json']);
});

test('a record that was prepared and not committed changes nothing', async () => {
  await writeRecord(directory, record);
  await prepareRecord(directory, { ...record, version: 8 });
  expect((await readRecord(directory))?.version).toBe(7);
});

test('no record is told from one that cannot be read', async () => {
  expect(await readRecord(directory)).toBeUndefined();
  for (const text of ['', '{}', '{"format":2}', JSON.stringify({ ...record, layers: ['../../etc'] })]) {
    await writeFile(join(directory, 'record.json'), text);
    await expect(readRecord(directory)).rejects.toThrow();
  }
});

test('a record cut short anywhere is refused', () => {
  const text = JSON.stringify(record);
  fc.assert(
    fc.property(fc.nat({ max: text.length - 1 }), (length) => {
      expect(() => parseRecord(text.slice(0, length))).toThrow();
    }),
  );
});

test('what others see holds nothing of the machine', () => {
  expect(Object.keys(viewOf(record)).sort()).toEqual(['generation', 'life', 'mark', 'settings', 'spec', 'version']);
});
