/** How much of an image is taken. Whoever made it is not trusted: what has no bound here has one in the reader that meets it. */
import { PlatformError } from '../../protocol/index.ts';

export interface ImageLimits {
  /** Bytes of files in all layers together, also of those that a later layer removes; they are written before it is known. */
  readonly totalBytes: number;
  /** Entries of all layers together, and the directories that they only imply. */
  readonly entries: number;
  /** Bytes of one path. */
  readonly pathBytes: number;
  /** Names in one path. */
  readonly depth: number;
  readonly layers: number;
  /** Bytes of all blobs as they are stored or sent. */
  readonly blobBytes: number;
}

export const defaultImageLimits: ImageLimits = {
  totalBytes: 32 * 1024 ** 3,
  entries: 1_000_000,
  pathBytes: 4_000,
  depth: 128,
  layers: 256,
  blobBytes: 16 * 1024 ** 3,
};

/** The refusal of an image that is malformed or asks for something that is never done. */
export function refuseImage(message: string, details: Readonly<Record<string, unknown>> = {}, cause?: unknown): never {
  throw new PlatformError('image_refused', message, { details, ...(cause === undefined ? {} : { cause }) });
}

export function refuseBeyond(limit: keyof ImageLimits, limits: ImageLimits): never {
  throw new PlatformError('image_too_large', `The image has more than ${limits[limit]} (${limit}).`, {
    details: { limit, allowed: limits[limit] },
  });
}
