/**
 * Bytes with a promised digest and size, checked while they pass. Nobody may use what came out before the end was reached: `isVerified`
 * tells, for a consumer that stops early (a decompressor at the end of its format) is never told otherwise.
 */
import { createHash } from 'node:crypto';
import { refuseImage } from './image-limits.ts';

export interface BlobPromise {
  readonly digest: string;
  /** Absent: only the digest is known. */
  readonly size?: number;
}

export class VerifiedBlob implements AsyncIterable<Buffer> {
  readonly #source: AsyncIterable<Buffer>;
  readonly #promise: BlobPromise;
  #isVerified = false;

  constructor(source: AsyncIterable<Buffer>, promise: BlobPromise) {
    this.#source = source;
    this.#promise = promise;
  }

  get isVerified(): boolean {
    return this.#isVerified;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer, void> {
    const { digest, size = Number.POSITIVE_INFINITY } = this.#promise;
    const hash = createHash('sha256');
    let count = 0;
    for await (const chunk of this.#source) {
      count += chunk.byteLength;
      if (count > size)
        refuseImage(`The blob ${digest} is longer than the ${size} bytes that were promised.`, { digest });
      hash.update(chunk);
      yield chunk;
    }
    if (size !== Number.POSITIVE_INFINITY && count < size) {
      refuseImage(`The blob ${digest} has ${count} bytes in place of the ${size} that were promised.`, { digest });
    }
    const found = `sha256:${hash.digest('hex')}`;
    if (found !== digest) refuseImage(`The blob ${digest} does not have its digest but ${found}.`, { digest, found });
    this.#isVerified = true;
  }

  /** All of a small one. */
  async read(): Promise<Buffer> {
    const parts: Buffer[] = [];
    for await (const part of this) parts.push(part);
    return Buffer.concat(parts);
  }
}

export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}
