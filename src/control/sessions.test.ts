import { afterEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer } from '../../test/support/fake-node.ts';
import { type BodyInputOf, type Conditions, newId, PlatformError, routes, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
afterEach(() => rig.close());

function create(
  sandboxId: SandboxId,
  conditions: Conditions = {},
  body: BodyInputOf<typeof routes.createSession> = { name: 'work' },
) {
  return rig.control.sessions.create(rig.caller, sandboxId, conditions, routes.createSession.body.parse(body));
}

function exec(sandboxId: SandboxId, conditions: Conditions = {}, session = 'work') {
  const body = routes.execInSession.body.parse({ command: 'echo hello' });
  return rig.control.sessions.exec(rig.caller, { sandboxId, session }, conditions, body);
}

function setEnv(sandboxId: SandboxId, conditions: Conditions, env: Record<string, string | null>) {
  return rig.control.sessions.setEnv(rig.caller, { sandboxId, session: 'work' }, conditions, { env });
}

test('sessions write nothing to the store without a key', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const before = await rig.events();
  const session = await create(id);
  expect(session).toMatchObject({ name: 'work', state: 'running', end: null, queued: 0, current: null });
  expect(await exec(id)).toMatchObject({
    stdout: 'echo hello',
    exitCode: 3,
    sessionEnded: null,
    sessionId: session.id,
  });
  await rig.control.sessions.delete(rig.caller, { sandboxId: id, session: 'work' }, {});
  expect(await rig.events()).toEqual(before);
  await expect(exec(id)).rejects.toMatchObject({ code: 'session_not_found' });
});

test('a create whose answer was lost is the same session when it is repeated under its key', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  rig.node.fail('createSession', { when: 'after', error: lostAnswer() });
  await expect(create(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  const again = await create(id, { idempotencyKey: 'once' });
  expect(rig.node.sessions.creates.map(({ sessionId }) => sessionId)).toEqual([again.id]);
});

test('a command whose answer was lost is in doubt under its key, with its exit code, and does not run again', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  rig.node.fail('execInSession', { when: 'after', error: lostAnswer() });
  await expect(exec(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  const again = exec(id, { idempotencyKey: 'once' });
  await expect(again).rejects.toMatchObject({ code: 'operation_in_doubt', details: { run: 'ended', exitCode: 3 } });
  expect(rig.node.sessions.execs).toHaveLength(1);
});

test('a command that never reached the shell runs when it is repeated under its key; its answer is kept', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  rig.node.fail('execInSession', { when: 'before', error: lostAnswer() });
  await expect(exec(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  const first = await exec(id, { idempotencyKey: 'once' });
  expect(await exec(id, { idempotencyKey: 'once' })).toEqual(first);
  expect(rig.node.sessions.execs).toHaveLength(1);
});

test('a command that left the queue frees its key: a repeat runs it', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  const left = new PlatformError('session_queue_timeout', 'The caller left; nothing ran.');
  rig.node.fail('execInSession', { when: 'before', error: left });
  await expect(exec(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'session_queue_timeout' });
  expect(await exec(id, { idempotencyKey: 'once' })).toMatchObject({ stdout: 'echo hello', exitCode: 3 });
  expect(rig.node.sessions.execs).toHaveLength(1);
});

test('variables whose setting was not answered are not set again over what came after them', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  rig.node.fail('setSessionEnv', { when: 'after', error: lostAnswer() });
  const first = () => setEnv(id, { idempotencyKey: 'once' }, { A: '1' });
  await expect(first()).rejects.toMatchObject({ code: 'outcome_unknown' });
  await setEnv(id, {}, { A: '2' });
  await first();
  expect(rig.node.sessions.envs.map(({ env }) => env)).toEqual([{ A: '1' }, { A: '2' }]);
});

test('E69: a name that cannot be one is refused before anything is asked of the node', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  for (const name of ['', '1A', 'A-B', 'A=B', 'Ä']) {
    const refused = setEnv(id, {}, { GOOD: '1', [name]: '2' });
    await expect(refused).rejects.toMatchObject({ code: 'invalid_request' });
  }
  expect(rig.node.sessions.envs).toEqual([]);
});

test('what changes a session needs the lease and the life; what looks at it does not', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  await rig.acquire([id]);
  const address = { sandboxId: id, session: 'work' };
  await expect(exec(id)).rejects.toMatchObject({ code: 'lease_held' });
  await expect(create(id, {}, { name: 'more' })).rejects.toMatchObject({ code: 'lease_held' });
  await expect(setEnv(id, {}, { A: '1' })).rejects.toMatchObject({ code: 'lease_held' });
  await expect(rig.control.sessions.delete(rig.caller, address, {})).rejects.toMatchObject({ code: 'lease_held' });
  await expect(exec(id, { generation: 9 })).rejects.toMatchObject({ code: 'stale_generation' });
  expect((await rig.control.sessions.get(rig.caller, address)).name).toBe('work');
  expect((await rig.control.sessions.list(rig.caller, id)).items).toHaveLength(1);
});

test('a delete that was cut off is done when it is repeated by id, and in doubt by name', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const session = await create(id);
  const remove = (name: string) =>
    rig.control.sessions.delete(rig.caller, { sandboxId: id, session: name }, { idempotencyKey: name });
  rig.node.fail('deleteSession', { when: 'after', error: lostAnswer() });
  await expect(remove(session.id)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await remove(session.id);
  await create(id);
  rig.node.fail('deleteSession', { when: 'after', error: lostAnswer() });
  await expect(remove('work')).rejects.toMatchObject({ code: 'outcome_unknown' });
  await create(id);
  await expect(remove('work')).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect((await rig.control.sessions.list(rig.caller, id)).items).toHaveLength(1);
});

test("another team's sandbox is not found, whatever is asked of its sessions", async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await create(id);
  const stranger = { ...rig.caller, teamId: newId('team') };
  const address = { sandboxId: id, session: 'work' };
  const { sessions } = rig.control;
  const refused = { code: 'sandbox_not_found' };
  const body = routes.execInSession.body.parse({ command: 'true' });
  await expect(sessions.get(stranger, address)).rejects.toMatchObject(refused);
  await expect(sessions.list(stranger, id)).rejects.toMatchObject(refused);
  await expect(sessions.exec(stranger, address, {}, body)).rejects.toMatchObject(refused);
  await expect(sessions.delete(stranger, address, {})).rejects.toMatchObject(refused);
});
