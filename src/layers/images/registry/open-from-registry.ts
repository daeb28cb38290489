/** An image of a registry: its documents are read, its layers fetched into the cache, a few at a time, before the first is unpacked. */
import { setTimeout as delay } from 'node:timers/promises';
import { AtMost } from '../../../base/index.ts';
import { isPlatformError } from '../../../protocol/index.ts';
import type { RemoteRules } from '../../remote-rules.ts';
import { refuseImage } from '../image-limits.ts';
import type { ImageSource } from '../image-source.ts';
import { type Descriptor, indexMediaTypes, manifestMediaTypes } from '../manifests.ts';
import { type BlobSource, type OpenedImage, type OpenOptions, openOciImage } from '../oci-image.ts';
import type { ImageProgress } from '../unpack-image.ts';
import { digestOf } from '../verified-blob.ts';
import { BlobCache } from './blob-cache.ts';
import { parseReference } from './reference.ts';
import { RegistryClient } from './registry-client.ts';

export interface RegistryOpenOptions extends OpenOptions {
  readonly cacheDirectory: string;
  readonly rules: RemoteRules;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: ((progress: ImageProgress) => void) | undefined;
}

const downloadsAtOnce = 3;
const attemptsMax = 3;
const retryDelayMs = 500;
const progressStepBytes = 4 * 1024 * 1024;

export async function openFromRegistry(
  source: Extract<ImageSource, { kind: 'registry' }>,
  options: RegistryOpenOptions,
): Promise<OpenedImage> {
  const { signal } = options;
  const reference = parseReference(source.reference);
  const cache = new BlobCache({ directory: options.cacheDirectory });
  const client = await RegistryClient.open({
    reference,
    credentials: source.credentials,
    insecure: source.insecure ?? false,
    rules: options.rules,
    signal,
  });
  const download = (blob: Descriptor) =>
    retried(() => cache.ensure(blob, () => watched(client.getBlob(blob.digest), blob, options)), signal);
  const blobs: BlobSource = {
    open: (blob) => (isManifest(blob) ? manifestOf(client, blob, signal) : cachedBlob(cache, blob, download)),
  };
  const { bytes, contentDigest } = await retried(() => client.getManifest(reference.version), signal);
  const digest = digestOf(bytes);
  const promised = reference.version.startsWith('sha256:') ? reference.version : contentDigest;
  if (promised !== undefined && promised !== digest) {
    refuseImage(`The manifest ${promised} does not have its digest but ${digest}.`, {
      digest: promised,
      found: digest,
    });
  }
  const image = await openOciImage(blobs, { bytes, digest }, options);
  const descriptors = image.layers.map(({ digest: name, size }) => layerDescriptor(name!, size));
  // An image may have one layer several times.
  await forEach([...new Map(descriptors.map((blob) => [blob.digest, blob])).values()], download);
  const layers = descriptors.map((blob) => ({ ...blob, open: () => cache.read(blob) }));
  return { ...image, layers, close: () => cache.trim() };
}

function layerDescriptor(digest: string, size: number): Descriptor {
  return { mediaType: '', digest, size, platform: undefined, annotations: {} };
}

function isManifest({ mediaType }: Descriptor): boolean {
  return ['', ...manifestMediaTypes, ...indexMediaTypes].includes(mediaType);
}

async function* manifestOf(
  client: RegistryClient,
  blob: Descriptor,
  signal: AbortSignal | undefined,
): AsyncGenerator<Buffer, void> {
  yield (await retried(() => client.getManifest(blob.digest), signal)).bytes;
}

async function* cachedBlob(
  cache: BlobCache,
  blob: Descriptor,
  download: (blob: Descriptor) => Promise<void>,
): AsyncGenerator<Buffer, void> {
  await download(blob);
  yield* cache.read(blob);
}

async function* watched(
  source: AsyncIterable<Buffer>,
  blob: Descriptor,
  { onProgress }: RegistryOpenOptions,
): AsyncGenerator<Buffer, void> {
  const report = () => onProgress?.({ kind: 'download', digest: blob.digest, bytes, totalBytes: blob.size });
  let bytes = 0;
  let reported = 0;
  for await (const chunk of source) {
    bytes += chunk.byteLength;
    if (bytes - reported >= progressStepBytes) {
      reported = bytes;
      report();
    }
    yield chunk;
  }
  report();
}

async function retried<Result>(task: () => Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await task();
    } catch (error) {
      if (attempt === attemptsMax || !isPlatformError(error, 'registry_unavailable')) throw error;
      await delay(retryDelayMs * attempt, undefined, { signal });
    }
  }
}

/** After the first failure nothing new is begun, and what is on its way is awaited, so that nothing is left running. */
async function forEach<Item>(items: readonly Item[], run: (item: Item) => Promise<void>): Promise<void> {
  const turns = new AtMost(downloadsAtOnce);
  let hasFailed = false;
  const runOne = async (item: Item) => {
    if (hasFailed) return;
    await run(item).catch((error: unknown) => {
      hasFailed = true;
      throw error;
    });
  };
  const ended = await Promise.allSettled(items.map((item) => turns.run(() => runOne(item))));
  for (const end of ended) if (end.status === 'rejected') throw end.reason;
}
