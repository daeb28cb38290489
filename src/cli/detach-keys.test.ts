import { expect, test, vi } from 'vitest';
import { DetachKeys } from './detach-keys.ts';

function rig() {
  const seen = { typed: '', isDetached: false };
  const keys = new DetachKeys({
    onKeys: (bytes) => {
      seen.typed += Buffer.from(bytes).toString('latin1');
    },
    onDetach: () => {
      seen.isDetached = true;
    },
  });
  return { seen, type: (text: string) => keys.type(Buffer.from(text, 'latin1')) };
}

const cases: readonly [pieces: string[], typed: string, isDetached: boolean][] = [
  [['ls\r'], 'ls\r', false],
  [['ls\x10\x11more'], 'ls', true],
  [['a\x10', '\x11'], 'a', true],
  [['\x10b'], '\x10b', false],
  [['\x10\x10\x11'], '\x10', true],
  [['\x11\x10x'], '\x11\x10x', false],
];
test.each(cases)('of %j is typed %j; left: %j', (pieces, typed, isDetached) => {
  const { seen, type } = rig();
  for (const piece of pieces) type(piece);
  expect(seen).toEqual({ typed, isDetached });
});

test('a Ctrl-P alone arrives when nothing follows it', () => {
  vi.useFakeTimers();
  try {
    const { seen, type } = rig();
    type('\x10');
    expect(seen.typed).toBe('');
    vi.advanceTimersByTime(1_000);
    expect(seen.typed).toBe('\x10');
    type('\x11');
    expect(seen).toEqual({ typed: '\x10\x11', isDetached: false });
  } finally {
    vi.useRealTimers();
  }
});
