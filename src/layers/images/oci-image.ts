/**
 * An image as a set of blobs named by digest: from the document it begins with to its configuration and layers. Layouts, archives and
 * registries differ only in where a blob comes from.
 */
import { type ImageLimits, refuseBeyond, refuseImage } from './image-limits.ts';
import {
  chooseDescriptor,
  type Descriptor,
  documentBytesMax,
  indexMediaTypes,
  type Platform,
  parseIndexOrManifest,
} from './manifests.ts';
import { VerifiedBlob } from './verified-blob.ts';

/** One layer as it is stored; its bytes are not verified yet. */
export interface LayerBlob {
  /** Absent in archives that name their layers by file only. */
  readonly digest: string | undefined;
  readonly size: number;
  open(): AsyncIterable<Buffer>;
}

export interface OpenedImage {
  /** Of the manifest; of the configuration where there is no manifest. */
  readonly digest: string;
  /** Verified. */
  readonly config: Buffer;
  /** The lowest first. */
  readonly layers: readonly LayerBlob[];
  close(): Promise<void>;
}

export interface BlobSource {
  /** The bytes as they come; the caller verifies. */
  open(descriptor: Descriptor): AsyncIterable<Buffer>;
}

export interface OpenOptions {
  readonly platform: Platform;
  readonly limits: ImageLimits;
  readonly tag?: string | undefined;
}

/** Indexes in indexes. */
const nestingMax = 4;

export async function openOciImage(
  blobs: BlobSource,
  start: { readonly bytes: Buffer; readonly digest: string },
  options: OpenOptions,
): Promise<Omit<OpenedImage, 'close'>> {
  let { bytes, digest } = start;
  let tag = options.tag;
  for (let nesting = 0; nesting <= nestingMax; nesting += 1) {
    const document = parseIndexOrManifest(bytes);
    if ('manifest' in document) {
      const { config, layers } = document.manifest;
      if (layers.length > options.limits.layers) refuseBeyond('layers', options.limits);
      if (layers.reduce((sum, layer) => sum + layer.size, 0) > options.limits.blobBytes) {
        refuseBeyond('blobBytes', options.limits);
      }
      return {
        digest,
        config: await readDocument(blobs, config),
        layers: layers.map((layer) => ({ digest: layer.digest, size: layer.size, open: () => blobs.open(layer) })),
      };
    }
    const chosen = chooseDescriptor(document.index, { platform: options.platform, tag });
    // The tag has chosen; deeper indexes choose by platform.
    tag = undefined;
    bytes = await readDocument(blobs, chosen);
    digest = chosen.digest;
  }
  refuseImage(`The image is behind more than ${nestingMax} indexes.`, { mediaTypes: indexMediaTypes });
}

function readDocument(blobs: BlobSource, descriptor: Descriptor): Promise<Buffer> {
  if (descriptor.size > documentBytesMax) {
    refuseImage(`A document of the image has more than ${documentBytesMax} bytes.`, { digest: descriptor.digest });
  }
  return new VerifiedBlob(blobs.open(descriptor), descriptor).read();
}
