/** Orders that cannot be, refused before init is asked, and what init's refusals mean. */
import { expect, test } from 'vitest';
import { refusalCodes } from '../init-protocol.ts';
import { checkInSession, refusalInSession } from './checks.ts';
import { SessionBusy } from './orders.ts';

const order = {
  generation: 1,
  sessionId: 'ses1',
  leaseToken: null,
  runId: 'run1',
  command: 'true',
  cwd: null,
  env: {},
};

test('a text may be anything but NUL, and may be empty', () => {
  expect(() => checkInSession({ ...order, command: '' })).not.toThrow();
  expect(() => checkInSession({ ...order, command: 'echo "\n' })).not.toThrow();
  expect(() => checkInSession({ ...order, command: 'a\0b' })).toThrow(
    expect.objectContaining({ code: 'invalid_command' }),
  );
});

test('a name that no shell takes is refused, also when it is to be unset', () => {
  for (const name of ['', '1a', 'a-b', 'a b', 'a=b', 'ä', 'BASH_FUNC_x%%']) {
    for (const value of ['1', null]) {
      const env = { [name]: value };
      expect(() => checkInSession({ ...order, env }), name).toThrow(
        expect.objectContaining({ code: 'invalid_request' }),
      );
    }
  }
  expect(() => checkInSession({ ...order, env: { _a1: 'any = value', B: null } })).not.toThrow();
});

test('too many variables, too much text and an empty directory are refused', () => {
  const many = Object.fromEntries(Array.from({ length: 257 }, (_, index) => [`v${index}`, '']));
  expect(() => checkInSession({ ...order, env: many })).toThrow('256');
  expect(() => checkInSession({ ...order, command: 'x'.repeat(8 * 1024 * 1024) })).toThrow('8 MiB');
  expect(() => checkInSession({ ...order, cwd: '' })).toThrow(expect.objectContaining({ code: 'invalid_request' }));
});

test('each refusal of init has its meaning', () => {
  const refusal = (code: number, errno = 0) =>
    refusalInSession({ ...order, env: { A: '1', B: '2' } }, { code, errno, text: 'why' });
  expect(refusal(refusalCodes.sessionBusy)).toBeInstanceOf(SessionBusy);
  expect(refusal(refusalCodes.sessionOver)).toMatchObject({ code: 'session_terminated' });
  expect(refusal(refusalCodes.noSuchRun)).toMatchObject({ code: 'session_not_found' });
  expect(refusal(refusalCodes.startedBefore)).toMatchObject({ code: 'operation_in_doubt' });
  expect(refusal(refusalCodes.readOnlyVariable, 1)).toMatchObject({
    code: 'invalid_request',
    message: expect.stringContaining('B'),
  });
  expect(refusal(refusalCodes.workingDirectory)).toMatchObject({ code: 'cwd_not_usable' });
});
