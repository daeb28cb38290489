import { expect, test } from 'vitest';
import { parseWaitStatus } from './wait-status.ts';

test('an exit has a code and no signal', () => {
  expect(parseWaitStatus(7 << 8)).toEqual({ exitCode: 7, signal: null });
  expect(parseWaitStatus(137 << 8)).toEqual({ exitCode: 137, signal: null });
});

test('a signal is 128 and its number, with its name; a core dump changes nothing', () => {
  expect(parseWaitStatus(9)).toEqual({ exitCode: 137, signal: 'SIGKILL' });
  expect(parseWaitStatus(6 | 0x80)).toEqual({ exitCode: 134, signal: 'SIGABRT' });
  expect(parseWaitStatus(36)).toEqual({ exitCode: 164, signal: 'SIGRTMIN+2' });
});
