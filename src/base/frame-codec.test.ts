import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  BodyReader,
  encodeFrame,
  type Frame,
  FrameReader,
  field,
  frameLimitBytes,
  MalformedFrame,
  readFields,
  u8,
  u32,
  u64,
} from './frame-codec.ts';

const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));
const frame = fc.record({ type: fc.integer({ min: 0, max: 255 }), body: bytes(300) });

function split(stream: Buffer, cuts: readonly number[]): Buffer[] {
  const places = [0, ...cuts.map((cut) => cut % (stream.length + 1)), stream.length].sort((a, b) => a - b);
  return places.slice(1).map((end, index) => stream.subarray(places[index], end));
}

test('frames come out as they went in, however the stream is cut', () => {
  fc.assert(
    fc.property(fc.array(frame, { maxLength: 20 }), fc.array(fc.nat(), { maxLength: 30 }), (frames, cuts) => {
      const stream = Buffer.concat(frames.map(({ type, body }) => encodeFrame(type, body)));
      const reader = new FrameReader({ limitBytes: 1000 });
      const out: Frame[] = split(stream, cuts).flatMap((chunk) => reader.push(chunk));
      expect(out.map(({ type, body }) => ({ type, body: Buffer.from(body) }))).toEqual(frames);
      expect(reader.heldBytes).toBe(0);
    }),
  );
});

test('arbitrary bytes give frames or MalformedFrame, and never more than the limit is held', () => {
  fc.assert(
    fc.property(fc.array(bytes(200), { maxLength: 20 }), (chunks) => {
      const reader = new FrameReader({ limitBytes: 64 });
      try {
        for (const chunk of chunks) {
          for (const { body } of reader.push(chunk)) expect(body.length).toBeLessThan(64);
          expect(reader.heldBytes).toBeLessThan(4 + 64);
        }
      } catch (error) {
        if (!(error instanceof MalformedFrame)) throw error;
      }
    }),
  );
});

test('a length of zero or beyond the limit is refused before the body arrives', () => {
  for (const length of [0, 65, 0xffffffff]) {
    expect(() => new FrameReader({ limitBytes: 64 }).push(u32(length))).toThrow(MalformedFrame);
  }
});

test('a frame beyond the protocol limit is not sent', () => {
  expect(() => encodeFrame(1, Buffer.alloc(frameLimitBytes))).toThrow(RangeError);
});

test('fields of arbitrary bytes are read or refused', () => {
  const known = new Set([1, 2, 3]);
  fc.assert(
    fc.property(bytes(200), (body) => {
      try {
        for (const [tag, value] of readFields(body, known)) expect(known.has(tag) && value.left <= 200).toBe(true);
      } catch (error) {
        if (!(error instanceof MalformedFrame)) throw error;
      }
    }),
  );
});

test('an unknown tag, a repeated one and an overrun are malformed', () => {
  const known = new Set([1]);
  expect(() => readFields(field(2, u8(0)), known)).toThrow('unknown');
  expect(() => readFields(Buffer.concat([field(1, u8(0)), field(1, u8(0))]), known)).toThrow('twice');
  expect(() => readFields(Buffer.concat([u8(1), u32(5), u8(0)]), known)).toThrow(MalformedFrame);
});

test('a number that JavaScript cannot hold is refused', () => {
  expect(new BodyReader(u64(Number.MAX_SAFE_INTEGER)).u64()).toBe(Number.MAX_SAFE_INTEGER);
  expect(() => new BodyReader(Buffer.alloc(8, 0xff)).u64()).toThrow(MalformedFrame);
});
