import { expect, test } from 'vitest';
import { ScreenModes } from './screen-modes.ts';

function undoOf(...pieces: readonly string[]): string {
  const modes = new ScreenModes();
  for (const piece of pieces) modes.see(Buffer.from(piece, 'latin1'));
  return modes.undo();
}

test('what is on is switched off, and a hidden cursor is shown', () => {
  expect(undoOf('\x1b[?1049h\x1b[?25l text \x1b[?1000;1006h')).toBe(
    '\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1006l\x1b[0m',
  );
});

test('what was switched off again is left alone', () => {
  expect(undoOf('\x1b[?1049h', 'text', '\x1b[?1049l\x1b[?25l\x1b[?25h')).toBe('');
  expect(undoOf('plain text \x1b[31mred')).toBe('');
});

test('a switch in two pieces counts', () => {
  expect(undoOf('text\x1b[?10', '49h')).toBe('\x1b[?1049l\x1b[0m');
  expect(undoOf('\x1b', '[?2004', 'h')).toBe('\x1b[?2004l\x1b[0m');
});
