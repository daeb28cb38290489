/**
 * An image in a tar file: an image layout (`oci-archive`, and what newer dockers save), or Docker's own form with a `manifest.json`.
 * The tar is gone through once for where its files are; blobs are read from there, so it must be a file and not compressed.
 */
import type { FileHandle } from 'node:fs/promises';
import { posix } from 'node:path';
import { z } from 'zod';
import { PlatformError } from '../../protocol/index.ts';
import { ByteReader, type SkippingIterator } from './byte-reader.ts';
import { openRegular } from './image-layout.ts';
import { refuseBeyond, refuseImage } from './image-limits.ts';
import { documentBytesMax, parseDocument } from './manifests.ts';
import { type LayerBlob, type OpenedImage, type OpenOptions, openOciImage } from './oci-image.ts';
import { tarTypes } from './tar-header.ts';
import { readTar } from './tar-reader.ts';
import { digestOf, VerifiedBlob } from './verified-blob.ts';

const entriesMax = 100_000;
/** Of all names and targets of links together: they are held until the image is closed. */
const namesMaxCharacters = 16 * 1024 ** 2;
const linksMax = 8;
const chunkBytes = 256 * 1024;
const gzipMagic = Buffer.of(0x1f, 0x8b);
const headerChunkBytes = 16 * 1024;

interface ArchivedFile {
  readonly offset: number;
  readonly size: number;
}

/** What the tar has, by cleaned name: files, and links as the name they stand for. */
type ArchiveIndex = ReadonlyMap<string, ArchivedFile | string>;

const savedSchema = z.array(
  z.object({
    Config: z.string(),
    RepoTags: z.array(z.string()).nullish(),
    Layers: z.array(z.string()),
  }),
);

export async function openArchive(path: string, options: OpenOptions): Promise<OpenedImage> {
  const file = await openRegular(path);
  try {
    const index = await indexArchive(file);
    const image = index.has('oci-layout')
      ? await openLayoutIn(file, index, options)
      : await openSaved(file, index, options);
    return { ...image, close: () => file.close() };
  } catch (error) {
    await file.close();
    throw error;
  }
}

async function openLayoutIn(file: FileHandle, index: ArchiveIndex, options: OpenOptions) {
  const bytes = await readSmall(file, find(index, 'index.json'));
  const blobs = {
    open: ({ digest }: { readonly digest: string }) =>
      readPart(file, find(index, `blobs/sha256/${digest.slice('sha256:'.length)}`)),
  };
  return openOciImage(blobs, { bytes, digest: digestOf(bytes) }, options);
}

async function openSaved(file: FileHandle, index: ArchiveIndex, options: OpenOptions) {
  const bytes = await readSmall(file, find(index, 'manifest.json'));
  const saved = parseDocument(bytes, { schema: savedSchema, what: 'manifest.json' });
  const chosen = chooseSaved(saved, options.tag);
  if (chosen.Layers.length > options.limits.layers) refuseBeyond('layers', options.limits);
  const config = await readSmall(file, find(index, chosen.Config));
  const layers = chosen.Layers.map((name): LayerBlob => {
    const part = find(index, name);
    return { digest: undefined, size: part.size, open: () => readPart(file, part) };
  });
  if (layers.reduce((sum, layer) => sum + layer.size, 0) > options.limits.blobBytes) {
    refuseBeyond('blobBytes', options.limits);
  }
  const promised = /^(?:.*\/)?([0-9a-f]{64})(?:\.json)?$/.exec(chosen.Config)?.[1];
  if (promised !== undefined) await new VerifiedBlob(once(config), { digest: `sha256:${promised}` }).read();
  return { digest: digestOf(config), config, layers };
}

function chooseSaved(saved: z.infer<typeof savedSchema>, tag: string | undefined) {
  const tagged = saved.filter(({ RepoTags }) => tag === undefined || RepoTags?.some((one) => isTag(one, tag)) === true);
  if (tagged.length === 1) return tagged[0]!;
  const tags = saved.flatMap(({ RepoTags }) => RepoTags ?? []).slice(0, 32);
  if (tagged.length > 1) refuseImage(`There are several images in the archive; name one of: ${tags.join(', ')}`);
  throw new PlatformError(
    'image_not_found',
    `The archive has no image${tag === undefined ? '' : ` with the tag "${tag}"`}.`,
    {
      details: { available: tags },
    },
  );
}

function isTag(full: string, tag: string): boolean {
  return full === tag || full.endsWith(`/${tag}`) || full.endsWith(`:${tag}`);
}

async function indexArchive(file: FileHandle): Promise<ArchiveIndex> {
  const { size } = await file.stat();
  const { buffer } = await file.read(Buffer.alloc(2), 0, 2, 0);
  if (buffer.equals(gzipMagic)) refuseImage('The archive is compressed as a whole; decompress it first.');
  const reader = new ByteReader({ [Symbol.asyncIterator]: () => headersOf(file) });
  const index = new Map<string, ArchivedFile | string>();
  let characters = 0;
  for await (const entry of readTar(reader)) {
    characters += entry.name.length + entry.target.length;
    if (characters > namesMaxCharacters) refuseImage('The names in the archive are too long together.');
    const name = posix.normalize(entry.name);
    if (index.size >= entriesMax) refuseImage(`The archive has more than ${entriesMax} files.`);
    if (entry.offset + entry.size > size) refuseImage('The archive ends in the middle of a file.');
    if (entry.type === tarTypes.file) index.set(name, { offset: entry.offset, size: entry.size });
    // Docker saves a layer that two images share once, and links to it.
    if (entry.type === tarTypes.link) index.set(name, posix.join(posix.dirname(name), entry.target));
    if (entry.type === tarTypes.hardLink) index.set(name, posix.normalize(entry.target));
  }
  return index;
}

/** Small chunks, and past what is skipped: a header is all that is wanted of each file. */
function headersOf(file: FileHandle): SkippingIterator {
  let position = 0;
  return {
    async next() {
      const { bytesRead, buffer } = await file.read(
        Buffer.allocUnsafe(headerChunkBytes),
        0,
        headerChunkBytes,
        position,
      );
      position += bytesRead;
      return bytesRead === 0 ? { done: true, value: undefined } : { done: false, value: buffer.subarray(0, bytesRead) };
    },
    skip(count) {
      position += count;
    },
  };
}

function find(index: ArchiveIndex, name: string): ArchivedFile {
  let found = index.get(posix.normalize(name));
  for (let links = 0; typeof found === 'string' && links < linksMax; links += 1) found = index.get(found);
  if (typeof found === 'object') return found;
  refuseImage(
    `The archive has no file "${name}"${name === 'manifest.json' ? '; it is neither of the two kinds' : ''}.`,
  );
}

function readSmall(file: FileHandle, part: ArchivedFile): Promise<Buffer> {
  if (part.size > documentBytesMax) refuseImage(`A document in the archive has more than ${documentBytesMax} bytes.`);
  return file.read(Buffer.alloc(part.size), 0, part.size, part.offset).then(({ buffer }) => buffer);
}

async function* readPart(file: FileHandle, { offset, size }: ArchivedFile): AsyncGenerator<Buffer, void> {
  for (let at = 0; at < size; ) {
    const wanted = Math.min(chunkBytes, size - at);
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, offset + at);
    if (bytesRead === 0) return;
    at += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

async function* once(bytes: Buffer): AsyncGenerator<Buffer, void> {
  yield bytes;
}
