/** The envelopes of Connect's streams: one byte of flags, the length, and so many bytes. */
import { EnvdError } from './envd-error.ts';
import { HeldBytes } from './held-bytes.ts';

export const endFlag = 2;
const compressedFlag = 1;
const headBytes = 5;

export function envelope(flags: number, payload: Uint8Array): Buffer {
  const bytes = Buffer.allocUnsafe(headBytes + payload.byteLength);
  bytes.writeUInt8(flags, 0);
  bytes.writeUInt32BE(payload.byteLength, 1);
  bytes.set(payload, headBytes);
  return bytes;
}

/** The payloads of a stream of requests. What is larger than `limitBytes`, compressed or cut off is refused. */
export async function* readEnvelopes(
  chunks: AsyncIterable<Uint8Array>,
  limitBytes: number,
): AsyncGenerator<Uint8Array, void> {
  const held = new HeldBytes();
  for await (const chunk of chunks) {
    held.add(chunk);
    for (;;) {
      const length = payloadLength(held.look(), limitBytes);
      if (length === undefined || held.length < headBytes + length) break;
      yield held.take(headBytes + length).subarray(headBytes);
    }
  }
  if (held.length > 0) throw new EnvdError('invalid_argument', 'The last envelope is cut off.');
}

function payloadLength(held: Buffer, limitBytes: number): number | undefined {
  if (held.byteLength < headBytes) return undefined;
  const flags = held.readUInt8(0);
  if ((flags & compressedFlag) !== 0) throw new EnvdError('unimplemented', 'Compressed messages are not understood.');
  if (flags !== 0) throw new EnvdError('invalid_argument', `An envelope of a request has no flags, not ${flags}.`);
  const length = held.readUInt32BE(1);
  if (length > limitBytes) throw new EnvdError('resource_exhausted', `A message has at most ${limitBytes} bytes.`);
  return length;
}
