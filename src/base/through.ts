/**
 * Bytes as a transform gives them. A failure of either ends both and is thrown to whoever reads; `pipe` alone would leave the reader waiting and end
 * the process with an error that nobody hears.
 */
import { pipeline, Readable, type Transform } from 'node:stream';

export function through(source: AsyncIterable<Uint8Array>, transform: Transform): AsyncIterable<Buffer> {
  // The error of any part ends the last one, which is the one that is read.
  pipeline(Readable.from(source, { objectMode: false }), transform, () => {});
  return transform;
}
