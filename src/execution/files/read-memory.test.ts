import { expect, test } from 'vitest';
import { ReadMemory } from './read-memory.ts';

const most = 256 * 1024;

/** Read to until it is as large as it gets. */
function grown(): ReadMemory {
  const memory = new ReadMemory();
  while (memory.now.byteLength < most) memory.filled(memory.now.byteLength, { pieces: 0, isKept: false });
  return memory;
}

test('reads that fill the memory get more of it, up to a bound, and less again when it was shrunk', () => {
  const memory = new ReadMemory();
  const first = memory.now.byteLength;
  memory.filled(first - 1, { pieces: 0, isKept: false });
  expect(memory.now.byteLength).toBe(first);
  const large = grown();
  large.filled(most, { pieces: 0, isKept: false });
  expect(large.now.byteLength).toBe(most);
  large.shrink();
  large.filled(10, { pieces: 0, isKept: false });
  expect(large.now.byteLength).toBe(first);
});

test('memory of which nothing was handed out is read to again', () => {
  const memory = grown();
  const { now } = memory;
  memory.filled(9, { pieces: 0, isKept: false });
  expect(memory.now).toBe(now);
});

test('memory serves again when every piece of it was given back, and not before', () => {
  const memory = grown();
  const { buffer } = memory.now;
  const pieces = [memory.now.subarray(0, 100), memory.now.subarray(109, 200)] as const;
  memory.filled(200, { pieces: 2, isKept: false });
  const others = [memory.now.buffer];
  memory.giveBack(pieces[0]);
  memory.filled(9, { pieces: 1, isKept: false });
  others.push(memory.now.buffer);
  expect(others).not.toContain(buffer);
  memory.giveBack(pieces[1]);
  // A piece that is given back twice counts once.
  memory.giveBack(pieces[1]);
  memory.filled(9, { pieces: 1, isKept: false });
  expect(memory.now.buffer).toBe(buffer);
  memory.filled(9, { pieces: 1, isKept: false });
  expect(memory.now.buffer).not.toBe(buffer);
});

test('memory that something else refers to, and strange memory, never serve again', () => {
  const memory = grown();
  const kept = memory.now;
  memory.filled(200, { pieces: 1, isKept: true });
  memory.giveBack(kept.subarray(0, 100));
  memory.giveBack(Buffer.allocUnsafeSlow(most));
  const { buffer } = memory.now;
  memory.filled(9, { pieces: 1, isKept: false });
  expect(memory.now.buffer).not.toBe(buffer);
  expect(memory.now.buffer).not.toBe(kept.buffer);
});
