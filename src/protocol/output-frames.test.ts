import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type OutputFrame, OutputFrameReader, outputFrameHeadBytes, writeOutputFrameHead } from './output-frames.ts';

const frames = fc.array(
  fc.record({
    kind: fc.constantFrom(0 as const, 1 as const, 2 as const, 3 as const, 4 as const, 5 as const),
    position: fc.integer({ min: 0, max: 10 ** 15 }),
    payload: fc.uint8Array({ maxLength: 50 }),
  }),
  { maxLength: 8 },
);

test('frames come out as they went in, however the stream is cut', () => {
  fc.assert(
    fc.property(frames, fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 20 }), (all, cuts) => {
      const stream = Buffer.concat(all.map(({ kind, position, payload }) => encode(kind, position, payload)));
      const reader = new OutputFrameReader();
      const read: OutputFrame[] = [];
      for (let at = 0, piece = 0; at < stream.byteLength; piece++) {
        const length = cuts[piece % cuts.length]!;
        read.push(...reader.push(new Uint8Array(stream.subarray(at, at + length))));
        at += length;
      }
      expect(read.map((frame) => ({ ...frame, payload: [...frame.payload] }))).toEqual(
        all.map((frame) => ({ ...frame, payload: [...frame.payload] })),
      );
      expect(reader.isWithin).toBe(false);
    }),
  );
});

test('a stream that ends within a frame tells so, and a length beyond the limit is refused before it is kept', () => {
  const reader = new OutputFrameReader();
  expect([...reader.push(new Uint8Array(encode(1, 7, Buffer.from('abc')).subarray(0, 14)))]).toEqual([]);
  expect(reader.isWithin).toBe(true);
  const head = new Uint8Array(outputFrameHeadBytes);
  writeOutputFrameHead(head, { kind: 1, length: 2 ** 31, position: 0 });
  expect(() => [...new OutputFrameReader().push(head)].length).toThrow();
  const withMore = new Uint8Array([...head, 1]);
  expect(() => [...new OutputFrameReader().push(withMore)].length).toThrow('2147483648');
});

function encode(kind: 0 | 1 | 2 | 3 | 4 | 5, position: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(outputFrameHeadBytes);
  writeOutputFrameHead(head, { kind, length: payload.byteLength, position });
  return Buffer.concat([head, payload]);
}
