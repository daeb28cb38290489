import { expect, test } from 'vitest';
import { encodeFrame, MalformedFrame, u8, u16, u32 } from '../../base/index.ts';
import { dataFrameType, type WorkerAnswer, workerFrameLimitBytes } from './wire.ts';
import { WorkerFrames } from './worker-frames.ts';

const done = (request: number) => encodeFrame(72, u32(request));
const data = (request: number, text: string) => encodeFrame(dataFrameType, u32(request), Buffer.from(text));
const stream = Buffer.concat([
  ...[data(1, 'hello '), data(1, ''), data(1, 'world'), done(1)],
  ...[encodeFrame(73, u32(2), u16(12), u32(2)), data(3, 'again')],
]);

/** Data joined, the rest by kind, so that how it was cut makes no difference. */
function shown(answers: Iterable<WorkerAnswer>): string {
  return [...answers].map((answer) => (answer.kind === 'data' ? answer.bytes.toString() : `<${answer.kind}>`)).join('');
}

test('answers are the same however the stream is cut', () => {
  const whole = 'hello world<done><fault>again';
  for (let size = 1; size <= stream.length; size++) {
    const frames = new WorkerFrames();
    let text = '';
    for (let at = 0; at < stream.length; at += size) text += shown(frames.push(stream.subarray(at, at + size)));
    expect(text).toBe(whole);
  }
});

test('data is handed out before its frame is complete, without a copy', () => {
  const chunk = data(7, 'x'.repeat(1_000)).subarray(0, 500);
  const [first] = [...new WorkerFrames().push(chunk)];
  expect(first).toMatchObject({ kind: 'data', request: 7 });
  expect(first?.kind === 'data' && first.bytes.buffer === chunk.buffer && first.bytes.byteLength).toBe(491);
});

test.each([
  ['too long', u32(workerFrameLimitBytes + 1)],
  ['empty', u32(0)],
  ['data without a request', Buffer.concat([u32(3), u8(dataFrameType), u16(1)])],
  ['of an unknown type', encodeFrame(200, u32(1))],
])('a frame that is %s is a violation', (_, bytes) => {
  expect(() => [...new WorkerFrames().push(bytes)]).toThrow(MalformedFrame);
});
