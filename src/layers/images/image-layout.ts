/** An image layout: a directory with `oci-layout`, `index.json` and `blobs/sha256/…`. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { refuseImage } from './image-limits.ts';
import { documentBytesMax } from './manifests.ts';
import { type OpenedImage, type OpenOptions, openOciImage } from './oci-image.ts';
import { digestOf } from './verified-blob.ts';

const chunkBytes = 256 * 1024;

export async function openLayout(directory: string, options: OpenOptions): Promise<OpenedImage> {
  await readSmall(join(directory, 'oci-layout'));
  const bytes = await readSmall(join(directory, 'index.json'));
  const image = await openOciImage(
    { open: ({ digest }) => readBlob(join(directory, 'blobs', 'sha256', digest.slice('sha256:'.length))) },
    { bytes, digest: digestOf(bytes) },
    options,
  );
  return { ...image, close: async () => {} };
}

async function readSmall(path: string): Promise<Buffer> {
  await using file = await openRegular(path);
  if ((await file.stat()).size > documentBytesMax) refuseImage(`${path} has more than ${documentBytesMax} bytes.`);
  return file.readFile();
}

async function* readBlob(path: string): AsyncGenerator<Buffer, void> {
  await using file = await openRegular(path);
  yield* file.createReadStream({ highWaterMark: chunkBytes, autoClose: false }) as AsyncIterable<Buffer>;
}

/** Opens without waiting for the other end of a FIFO, and gives files only. */
export async function openRegular(path: string): Promise<FileHandle> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new PlatformError('image_not_found', `There is no image at ${path}.`, { cause: error });
  }
  if ((await file.stat()).isFile()) return file;
  await file.close();
  refuseImage(`${path} is not a file.`);
}
