import { createGunzip, createGzip, gunzipSync, gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import { through } from './through.ts';

async function* bytesThen(end: () => void): AsyncGenerator<Buffer, void> {
  for (let index = 0; index < 100; index++) yield Buffer.alloc(10_000, index);
  end();
}

async function read(bytes: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of bytes) parts.push(part);
  return Buffer.concat(parts);
}

test('what comes out is what the transform makes of the bytes', async () => {
  const zipped = await read(
    through(
      bytesThen(() => {}),
      createGzip(),
    ),
  );
  expect(gunzipSync(zipped).byteLength).toBe(1_000_000);
});

test('a source that fails half-way fails the reader, and nobody else', async () => {
  const unheard: unknown[] = [];
  const hear = (error: unknown) => unheard.push(error);
  process.on('uncaughtException', hear);
  try {
    const failing = bytesThen(() => {
      throw new Error('the sandbox is gone');
    });
    await expect(read(through(failing, createGzip()))).rejects.toThrow('the sandbox is gone');
    await new Promise(setImmediate);
    expect(unheard).toEqual([]);
  } finally {
    process.off('uncaughtException', hear);
  }
});

test('a transform that fails lets go of the source', async () => {
  let isOver = false;
  const source = (async function* () {
    try {
      yield gzipSync('good').subarray(0, 10);
      for (;;) yield Buffer.from('no gzip at all');
    } finally {
      isOver = true;
    }
  })();
  await expect(read(through(source, createGunzip()))).rejects.toMatchObject({ code: expect.stringMatching(/^Z_/) });
  await expect.poll(() => isOver).toBe(true);
});
