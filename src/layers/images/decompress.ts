/** A layer as a plain tar, whichever way it is compressed: its first bytes tell, for media types are often wrong about it. */
import type { Transform } from 'node:stream';
import { createGunzip, createZstdDecompress } from 'node:zlib';
import { through } from '../../base/index.ts';
import { isPlatformError } from '../../protocol/index.ts';
import { refuseImage } from './image-limits.ts';

const chunkSize = 256 * 1024;
const magicBytes = 4;
const refusedFormats: readonly [name: string, magic: Buffer][] = [
  ['xz', Buffer.from('fd377a58', 'hex')],
  ['bzip2', Buffer.from('425a68', 'hex')],
];

export async function* decompress(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void> {
  const iterator = source[Symbol.asyncIterator]();
  let first: Buffer = Buffer.alloc(0);
  while (first.byteLength < magicBytes) {
    const next = await iterator.next();
    if (next.done === true) break;
    first = Buffer.concat([first, next.value]);
  }
  const whole = { [Symbol.asyncIterator]: () => startingWith(first, iterator) };
  const transform = transformFor(first);
  if (transform === undefined) {
    yield* whole;
    return;
  }
  try {
    yield* through(whole, transform);
  } catch (error) {
    if (isPlatformError(error) || !isFormatError(error)) throw error;
    refuseImage('A layer of the image cannot be decompressed.', {}, error);
  }
}

function transformFor(first: Buffer): Transform | undefined {
  if (first.subarray(0, 2).equals(Buffer.of(0x1f, 0x8b))) return createGunzip({ chunkSize });
  if (first.subarray(0, 4).equals(Buffer.of(0x28, 0xb5, 0x2f, 0xfd))) {
    return createZstdDecompress({ chunkSize });
  }
  for (const [name, magic] of refusedFormats) {
    if (first.subarray(0, magic.byteLength).equals(magic)) {
      refuseImage(`A layer of the image is compressed with ${name}, which is not supported.`);
    }
  }
  return undefined;
}

function isFormatError(error: unknown): boolean {
  const code = (error as NodeJS.ErrnoException).code ?? '';
  return (
    code.startsWith('Z_') || code.startsWith('ZSTD_') || code.startsWith('ERR_ZSTD') || code.startsWith('ERR_ZLIB')
  );
}

async function* startingWith(first: Buffer, rest: AsyncIterator<Buffer>): AsyncGenerator<Buffer, void> {
  try {
    if (first.byteLength > 0) yield first;
    for (let next = await rest.next(); next.done !== true; next = await rest.next()) yield next.value;
  } finally {
    await rest.return?.();
  }
}
