/** What control decides about files; the node is a fake. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { fakeFileEntry } from '../../test/support/fake-files.ts';
import { lostAnswer } from '../../test/support/fake-node.ts';
import { type NodeSession, newId, type SandboxId, type WriteFileOrder } from '../protocol/index.ts';

let rig: ControlRig;
let id: SandboxId;
let orders: WriteFileOrder[];

beforeEach(async () => {
  rig = await ControlRig.open();
  ({ id } = (await rig.create()) as { id: SandboxId });
  orders = [];
  rig.node.writeFile = async (order, bytes) => {
    orders.push(order);
    let size = 0;
    for await (const chunk of bytes) size += chunk.byteLength;
    return fakeFileEntry(order.path, size);
  };
});
afterEach(() => rig.close());

const wanted = (append = false) =>
  ({ path: '/f', append: append ? 'true' : 'false', parents: 'true', expected: { kind: 'any' } }) as const;
const never = new AbortController().signal;
async function* text(content: string): AsyncGenerator<Uint8Array, void> {
  yield Buffer.from(content);
}
const write = (conditions: object, content = 'x', append = false) =>
  rig.control.files.write(rig.caller, id, conditions, wanted(append), text(content), never);

test('another life, another team and a sandbox that does not run are refused before the node is asked', async () => {
  await expect(write({ generation: 7 })).rejects.toMatchObject({ code: 'stale_generation' });
  const stranger = { ...rig.caller, teamId: 'tea00000000000000000' as typeof rig.caller.teamId };
  const theirs = rig.control.files.write(stranger, id, {}, wanted(), text('x'), never);
  await expect(theirs).rejects.toMatchObject({ code: 'sandbox_not_found' });
  await rig.control.sandboxes.stop(rig.caller, id, {}, { graceMs: 0 });
  await expect(write({})).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  expect(orders).toEqual([]);
});

test('the same key and content are one write; other content under the key is refused', async () => {
  const first = await write({ idempotencyKey: 'k' });
  expect(await write({ idempotencyKey: 'k' })).toEqual(first);
  expect(orders).toHaveLength(1);
  await expect(write({ idempotencyKey: 'k' }, 'y')).rejects.toMatchObject({ code: 'idempotency_key_reused' });
});

test('a lost answer is unknown; under its key a replacing write is done again, an append is not', async () => {
  const { writeFile } = rig.node;
  const loseOnce = () => {
    rig.node.writeFile = async (...given) => {
      await writeFile(...given);
      rig.node.writeFile = writeFile;
      throw lostAnswer();
    };
  };
  loseOnce();
  await expect(write({ idempotencyKey: 'r' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  expect(await write({ idempotencyKey: 'r' })).toMatchObject({ path: '/f' });
  loseOnce();
  await expect(write({ idempotencyKey: 'a' }, 'x', true)).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(write({ idempotencyKey: 'a' }, 'x', true)).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(orders).toHaveLength(3);
});

/** Writes in a session, which the node says is like this. */
async function writeIn(cwd: string | null, path: string, conditions: object = {}, end: NodeSession['end'] = null) {
  rig.node.getSession = async ({ session, generation }) => ({
    ...{ sessionId: newId('session'), generation, name: session, pid: 9, shell: 'bash', user: null, timeoutMs: null },
    ...{ startedAtMs: 1, end, cwd, current: null, queued: 0 },
  });
  const inSession = { ...wanted(), path, session: 'work' };
  return await rig.control.files.write(rig.caller, id, conditions, inSession, text('x'), never);
}

test('what is relative to a session is not done again elsewhere under its key; what is absolute is', async () => {
  const { writeFile } = rig.node;
  const loseOnce = () => {
    rig.node.writeFile = async (...given) => {
      await writeFile(...given);
      rig.node.writeFile = writeFile;
      throw lostAnswer();
    };
  };
  loseOnce();
  await expect(writeIn('/a', 'f', { idempotencyKey: 'r' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await expect(writeIn('/b', 'f', { idempotencyKey: 'r' })).rejects.toMatchObject({ code: 'operation_in_doubt' });
  loseOnce();
  await expect(writeIn('/a', '/f', { idempotencyKey: 'a' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  expect(await writeIn('/b', '/f', { idempotencyKey: 'a' })).toMatchObject({ path: '/f' });
  expect(orders).toMatchObject([{ path: '/a/f' }, { path: '/f' }, { path: '/f' }]);
});

test('a session that cannot tell where it is takes absolute paths, one that has ended takes none', async () => {
  await expect(writeIn(null, 'f')).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  expect(await writeIn(null, '/f')).toMatchObject({ path: '/f' });
  const end = { exitCode: 0, signal: null, reason: 'exited', endedAtMs: 1 } as const;
  await expect(writeIn(null, '/f', {}, end)).rejects.toMatchObject({ code: 'session_terminated' });
  expect(orders).toMatchObject([{ path: '/f' }]);
});

test('content under a key is held and so limited; without one it is passed on as it comes', async () => {
  async function* large(): AsyncGenerator<Uint8Array, void> {
    for (let at = 0; at < 20; at++) yield Buffer.alloc(1024 * 1024);
  }
  const send = (conditions: object) => rig.control.files.write(rig.caller, id, conditions, wanted(), large(), never);
  await expect(send({ idempotencyKey: 'big' })).rejects.toMatchObject({ code: 'payload_too_large' });
  expect(await send({})).toMatchObject({ sizeBytes: 20 * 1024 * 1024 });
});

test('a cursor that this list did not make is refused', async () => {
  const list = rig.control.files.list(rig.caller, id, {}, { path: '.', depth: 1, limit: 10, cursor: 'not base64!' });
  await expect(list).rejects.toMatchObject({ code: 'invalid_request' });
});
