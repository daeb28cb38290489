import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { packDirectory, packPaths, unpackDirectory } from './local-tar.ts';

let here: string;

beforeAll(async () => {
  here = await mkdtemp(join(tmpdir(), 'atoll-tar-'));
});
afterAll(() => rm(here, { recursive: true }));

async function* garbage(count: number): AsyncGenerator<Uint8Array, void> {
  for (let at = 0; at < count; at++) yield Buffer.alloc(65_536, 'x');
}

async function allOf(bytes: AsyncIterable<Uint8Array>): Promise<number> {
  let size = 0;
  for await (const chunk of bytes) size += chunk.byteLength;
  return size;
}

test('a tar that fails is told with its own words, also while more is being written to it', async () => {
  // Far more than a pipe holds: the writer is waiting for room when tar gives up.
  const failed = { code: 'tar_failed', message: expect.stringContaining('tar:') };
  await expect(unpackDirectory(here, garbage(1_000))).rejects.toMatchObject(failed);
  await expect(allOf(packPaths(here, ['missing']))).rejects.toMatchObject(failed);
});

test('a tar that has failed before anybody asks is told when it is asked', async () => {
  const packing = packDirectory(join(here, 'missing'));
  const first = await packing.next().catch((error: unknown) => error);
  expect(first).toMatchObject({ code: 'tar_failed' });
});
