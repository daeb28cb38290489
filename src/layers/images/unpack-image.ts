/**
 * An image into a directory: opens it where it is, applies its layers one after another, verifies everything, and syncs.
 *
 * Always true: the directory is made here and closed to others until the last entry is written. When it fails, or this process dies, the
 * directory is worth nothing and its caller removes it; nothing else is left, for what a registry sent stays in the cache by digest.
 */
import { lstat, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { noPrivateHosts, type RemoteRules } from '../remote-rules.ts';
import { applyLayer, type ImageTally, type LayerTarget, type TopEntry } from './apply-layer.ts';
import { decompress } from './decompress.ts';
import { openArchive } from './image-archive.ts';
import { type ImageConfig, type ParsedConfig, parseImageConfig } from './image-config.ts';
import { openLayout } from './image-layout.ts';
import { defaultImageLimits, type ImageLimits, refuseImage } from './image-limits.ts';
import type { ImageSource } from './image-source.ts';
import { ImageTree } from './image-tree.ts';
import { machinePlatform, type Platform } from './manifests.ts';
import type { LayerBlob, OpenedImage } from './oci-image.ts';
import { openFromRegistry } from './registry/open-from-registry.ts';
import { TreeWriter } from './tree-writer.ts';
import { digestOf, VerifiedBlob } from './verified-blob.ts';

export type ImageProgress =
  /** A blob on its way from a registry. */
  | { readonly kind: 'download'; readonly digest: string; readonly bytes: number; readonly totalBytes: number }
  /** A layer on its way into the tree; counted from 1. */
  | {
      readonly kind: 'unpack';
      readonly layer: number;
      readonly layers: number;
      readonly bytes: number;
      readonly totalBytes: number;
    };

export interface UnpackImageOptions {
  /** Does not exist; its parent does, and belongs to us alone. It becomes the tree. */
  readonly directory: string;
  /** The native program (`initProgram` of a node). */
  readonly program: string;
  /** Where blobs of registries are kept by digest; needed for those only. */
  readonly cacheDirectory?: string;
  /** Which registries may be asked besides those that everybody reaches. */
  readonly rules?: RemoteRules | undefined;
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: ImageProgress) => void;
  readonly limits?: Partial<ImageLimits>;
  /** By default this machine's. */
  readonly platform?: Platform;
}

export interface UnpackedImage {
  readonly config: ImageConfig;
  /** Of the manifest; of the configuration for an archive without manifests. Names the content: equal digests, equal trees. */
  readonly digest: string;
  /** Of the configuration, which docker calls the id of an image. */
  readonly imageId: string;
  readonly layers: number;
  readonly entries: number;
  /** Of the tars of all layers. */
  readonly bytes: number;
  readonly skippedDevices: number;
  readonly skippedAttributes: number;
}

const defaultTop: TopEntry = { mode: 0o755, uid: 0, gid: 0, mtime: { seconds: 0, nanoseconds: 0 } };
/** Progress is told each time so many bytes more have passed, and at the end. */
const progressStepBytes = 4 * 1024 * 1024;

export async function unpackImage(source: ImageSource, options: UnpackImageOptions): Promise<UnpackedImage> {
  const limits = { ...defaultImageLimits, ...options.limits };
  const platform = options.platform ?? machinePlatform();
  options.signal?.throwIfAborted();
  const image = await openImage(source, { ...options, limits, platform });
  try {
    const parsed = parseImageConfig(image.config);
    checkFits(parsed, image, platform);
    const tally: ImageTally = { limits, bytes: 0, entries: 0, skippedDevices: 0, skippedAttributes: 0 };
    await writeTree(image, { parsed, tally, options });
    const { bytes, entries, skippedDevices, skippedAttributes } = tally;
    const counts = { layers: image.layers.length, entries, bytes, skippedDevices, skippedAttributes };
    return { config: parsed.config, digest: image.digest, imageId: digestOf(image.config), ...counts };
  } finally {
    await image.close();
  }
}

type OpenImageOptions = UnpackImageOptions & { readonly limits: ImageLimits; readonly platform: Platform };

function openImage(source: ImageSource, options: OpenImageOptions): Promise<OpenedImage> {
  const { limits, platform, cacheDirectory, rules = noPrivateHosts, signal, onProgress } = options;
  if (source.kind === 'archive') return openArchive(source.path, { limits, platform, tag: source.tag });
  if (source.kind === 'layout') return openLayout(source.directory, { limits, platform, tag: source.tag });
  if (cacheDirectory === undefined) throw new PlatformError('invalid_request', 'A registry needs a cache directory.');
  return openFromRegistry(source, { limits, platform, cacheDirectory, rules, signal, onProgress });
}

function checkFits(parsed: ParsedConfig, image: OpenedImage, platform: Platform): void {
  if (parsed.diffIds.length !== image.layers.length) {
    refuseImage(`The image has ${image.layers.length} layers and digests of ${parsed.diffIds.length}.`);
  }
  const isOther = (found: string, wanted: string) => found !== '' && found !== wanted;
  if (isOther(parsed.os, platform.os) || isOther(parsed.architecture, platform.architecture)) {
    refuseImage(
      `The image is for ${parsed.os}/${parsed.architecture}, and ${platform.os}/${platform.architecture} is wanted.`,
    );
  }
}

interface TreeWork {
  readonly parsed: ParsedConfig;
  readonly tally: ImageTally;
  readonly options: UnpackImageOptions;
}

async function writeTree(image: OpenedImage, { parsed, tally, options }: TreeWork): Promise<void> {
  const { directory, program, signal } = options;
  await checkParent(dirname(directory));
  await mkdir(directory, { mode: 0o700 });
  const writer = new TreeWriter({ program, directory });
  const stop = () => void writer.close();
  signal?.addEventListener('abort', stop);
  try {
    let top = defaultTop;
    const setTop = (described: TopEntry) => {
      top = described;
    };
    const target: LayerTarget = { tree: new ImageTree(), writer, tally, setTop };
    for (const [index, layer] of image.layers.entries()) {
      const report = (bytes: number) =>
        options.onProgress?.({
          kind: 'unpack',
          layer: index + 1,
          layers: image.layers.length,
          bytes,
          totalBytes: layer.size,
        });
      await unpackLayer(layer, { diffId: parsed.diffIds[index]!, target, signal, report });
    }
    for (const { path, mtime } of target.tree.directories()) await writer.times(path, mtime);
    await writer.entry({ kind: 'knownDirectory', path: '', ...top });
    await writer.end();
  } catch (error) {
    // What was cut short fails in many ways; why it was is the one that counts.
    signal?.throwIfAborted();
    throw error;
  } finally {
    signal?.removeEventListener('abort', stop);
    await writer.close();
  }
}

/** Whoever can rename the directory while it is filled could put another in its place. */
async function checkParent(parent: string): Promise<void> {
  const { uid, mode } = await lstat(parent);
  const isSticky = (mode & 0o1000) !== 0;
  if (uid === process.geteuid?.() && ((mode & 0o022) === 0 || isSticky)) return;
  throw new PlatformError('isolation_failed', `${parent} can be changed by others, so no image is unpacked there.`);
}

async function unpackLayer(
  layer: LayerBlob,
  options: {
    readonly diffId: string;
    readonly target: LayerTarget;
    readonly signal: AbortSignal | undefined;
    readonly report: (bytes: number) => void;
  },
): Promise<void> {
  const watched = watchedBy(layer.open(), options);
  const blob =
    layer.digest === undefined ? watched : new VerifiedBlob(watched, { digest: layer.digest, size: layer.size });
  const tar = new VerifiedBlob(decompress(blob), { digest: options.diffId });
  await applyLayer(tar, options.target);
  if (!tar.isVerified || (blob instanceof VerifiedBlob && !blob.isVerified)) {
    refuseImage('A layer of the image has bytes after its end.', { diffId: options.diffId });
  }
}

async function* watchedBy(
  source: AsyncIterable<Buffer>,
  options: { readonly signal: AbortSignal | undefined; readonly report: (bytes: number) => void },
): AsyncGenerator<Buffer, void> {
  let bytes = 0;
  let reported = 0;
  for await (const chunk of source) {
    options.signal?.throwIfAborted();
    yield chunk;
    bytes += chunk.byteLength;
    if (bytes - reported < progressStepBytes) continue;
    reported = bytes;
    options.report(bytes);
  }
  options.report(bytes);
}
