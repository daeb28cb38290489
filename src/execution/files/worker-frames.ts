/**
 * Cuts what a file worker sends into answers. Data is handed out as it comes, in pieces, because waiting for a whole frame of it would mean to copy all
 * of it; every other frame is small and comes whole.
 *
 * Invariants:
 *  - #held is the beginning of a frame that is not complete, or nothing; while data is outstanding it is nothing.
 *  - A length beyond the limit throws before anything of that frame is kept.
 */
import { MalformedFrame } from '../../base/index.ts';
import { dataFrameType, parseWorkerAnswer, type WorkerAnswer, workerFrameLimitBytes } from './wire.ts';

const lengthBytes = 4;
/** Length, type and the number of the request. */
const dataHeadBytes = 9;
const nothing = Buffer.alloc(0);

export class WorkerFrames {
  #held: Buffer = nothing;
  #data = { request: 0, left: 0 };

  *push(chunk: Buffer): Generator<WorkerAnswer, void> {
    let rest: Buffer = this.#held.byteLength === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    this.#held = nothing;
    while (rest.byteLength > 0) {
      if (this.#data.left > 0) {
        const bytes = rest.subarray(0, this.#data.left);
        rest = rest.subarray(bytes.byteLength);
        this.#data.left -= bytes.byteLength;
        yield { kind: 'data', request: this.#data.request, bytes };
        continue;
      }
      const end = lengthOf(rest);
      const isData = rest[lengthBytes] === dataFrameType && end >= dataHeadBytes;
      if (rest.byteLength < (isData ? dataHeadBytes : end)) {
        // A copy: what it is part of is read to again.
        this.#held = Buffer.from(rest);
        return;
      }
      if (isData) {
        this.#data = { request: rest.readUInt32LE(lengthBytes + 1), left: end - dataHeadBytes };
        rest = rest.subarray(dataHeadBytes);
        continue;
      }
      const frame = { type: rest.readUInt8(lengthBytes), body: rest.subarray(lengthBytes + 1, end) };
      rest = rest.subarray(end);
      yield parseWorkerAnswer(frame);
    }
  }
}

/** Of the whole frame; more than there is while its length is not there yet. */
function lengthOf(bytes: Buffer): number {
  if (bytes.byteLength < lengthBytes) return Number.POSITIVE_INFINITY;
  const length = bytes.readUInt32LE(0);
  if (length >= 1 && length <= workerFrameLimitBytes) return lengthBytes + length;
  throw new MalformedFrame(`A frame of ${length} bytes was announced.`);
}
