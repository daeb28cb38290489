import { expect, test } from 'vitest';
import { newId, type SessionView } from '../protocol/index.ts';
import { type Connection, systemClientClock } from './connection.ts';
import type { ExecOptions, ExecResult } from './exec.ts';
import { Session, type SessionBinding } from './sessions.ts';

const living: SessionView = {
  ...{ id: newId('session'), sandboxId: newId('sandbox'), generation: 1, name: 'work', pid: 7, shell: 'bash' },
  ...{ user: 'agent', timeoutMs: null, state: 'running', startedAt: '2026-01-01T00:00:00.000Z', end: null },
  ...{ cwd: '/tmp/repo', current: null, queued: 0 },
};
const ended: SessionView = {
  ...living,
  ...{ state: 'ended', cwd: null },
  end: { exitCode: 3, signal: null, reason: 'exited', endedAt: '2026-01-01T00:00:01.000Z' },
};

/** The session as it was when the handle was made; the server says `view` when it is asked again. */
function handleOn(view: SessionView) {
  const ran: ExecOptions[] = [];
  const connection = { clock: systemClientClock, call: async () => view } as Partial<Connection> as Connection;
  const binding: SessionBinding = {
    connection,
    sandboxId: view.sandboxId,
    bound: (options) => options,
    run: async (_command, options) => {
      ran.push(options);
      return { exitCode: 0, stdout: '', stderr: '', timedOut: false } as ExecResult;
    },
  };
  return { session: new Session(binding, living), ran };
}

test('git runs where the shell is, as its user', async () => {
  const { session, ran } = handleOn(living);
  await session.git.status();
  await session.git.status({ path: 'sub' });
  await session.git.status({ path: '/else' });
  expect(ran.map(({ cwd, user }) => `${user} ${cwd}`)).toEqual([
    'agent /tmp/repo',
    'agent /tmp/repo/sub',
    'agent /else',
  ]);
});

test('git of a session that has ended runs nowhere, and says how it ended', async () => {
  const { session, ran } = handleOn(ended);
  const refused = { code: 'session_terminated', details: { name: 'work', exitCode: 3, reason: 'exited' } };
  await expect(session.git.status()).rejects.toMatchObject(refused);
  await expect(session.git.status({ path: '/else' })).rejects.toMatchObject(refused);
  expect(ran).toEqual([]);
});

test('git of a session that cannot tell where it is runs only where the caller says', async () => {
  const { session, ran } = handleOn({ ...living, cwd: null });
  await expect(session.git.status()).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await expect(session.git.status({ path: 'sub' })).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await session.git.status({ path: '/else' });
  expect(ran.map(({ cwd }) => cwd)).toEqual(['/else']);
});
