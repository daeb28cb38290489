import { afterEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { type Conditions, newId, portLimits, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
afterEach(() => rig.close());

const expose = (sandboxId: SandboxId, options: { port?: number; public?: boolean } & Conditions = {}) => {
  const { port = 80, public: isPublic, ...conditions } = options;
  const body = isPublic === undefined ? {} : { public: isPublic };
  return rig.control.ports.expose(rig.caller, { sandboxId, port }, conditions, body);
};
const admit = (sandboxId: SandboxId, token?: string, port = 80) => rig.control.ports.admit({ sandboxId, port }, token);

test('the store has no token, and the same one is told again after a restart', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { token } = await expose(id);
  expect(token).toMatch(/^atoll_prv[0-9a-f]{40}$/);
  const stored = await rig.store.read((tables) => tables.exposures.list(id));
  expect(JSON.stringify(stored)).not.toContain(token.slice(9));
  await rig.restart();
  expect((await expose(id)).token).toBe(token);
  (await admit(id, token)).leave();
});

test('many who expose one port at once have one token', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const all = await Promise.all(Array.from({ length: 20 }, () => expose(id)));
  expect(new Set(all.map(({ token }) => token)).size).toBe(1);
  expect(await rig.events('port.')).toHaveLength(1);
});

test('what is not exposed, not there, or of a deleted sandbox are the same to a visitor', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { token } = await expose(id);
  const refusals = [admit(id, token, 81), admit(newId('sandbox'), token)];
  for (const refusal of refusals) await expect(refusal).rejects.toMatchObject({ code: 'port_not_exposed' });
  await rig.delete(id);
  await expect(admit(id, token)).rejects.toMatchObject({ code: 'port_not_exposed' });
});

test('a token opens its own port only, and until it is rotated', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const [one, two] = [await expose(id), await expose(id, { port: 81 })];
  await expect(admit(id, two.token)).rejects.toMatchObject({ code: 'preview_token_invalid', status: 401 });
  await expect(admit(id)).rejects.toMatchObject({ code: 'preview_token_invalid' });
  await expect(admit(id, '')).rejects.toMatchObject({ code: 'preview_token_invalid' });
  const inside = await admit(id, one.token);
  const other = await admit(id, two.token, 81);
  const rotated = await rig.control.ports.rotate(rig.caller, { sandboxId: id, port: 80 }, {});
  expect(inside.revoked.aborted).toBe(true);
  expect(other.revoked.aborted).toBe(false);
  await expect(admit(id, one.token)).rejects.toMatchObject({ code: 'preview_token_invalid' });
  const again = await admit(id, rotated.token);
  expect(again.revoked.aborted).toBe(false);
});

test('a visitor whose exposure is read while it is taken back does not get in', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  let { token } = await expose(id);
  const { ports } = rig.control;
  let entered = 0;
  for (let round = 0; round < 20; round++) {
    const earlier = token;
    // Some look before the change, some meanwhile, some after it.
    const before = Promise.allSettled(Array.from({ length: 5 }, () => admit(id, earlier)));
    const rotating = ports.rotate(rig.caller, { sandboxId: id, port: 80 }, {});
    const meanwhile = Promise.allSettled(Array.from({ length: 5 }, () => admit(id, earlier)));
    token = (await rotating).token;
    for (const one of [...(await before), ...(await meanwhile)]) {
      if (one.status === 'rejected') continue;
      entered++;
      // Whoever got in was told to leave.
      expect(one.value.revoked.aborted).toBe(true);
      one.value.leave();
    }
  }
  expect(entered).toBeGreaterThan(0);
});

test('what was public is not any more for those who are in, and unexposing ends them too', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await expose(id, { public: true });
  const guest = await admit(id);
  await expose(id);
  expect(guest.revoked.aborted).toBe(false);
  await expose(id, { public: false });
  expect(guest.revoked.aborted).toBe(true);
  const { token } = await expose(id);
  const holder = await admit(id, token);
  await rig.control.ports.unexpose(rig.caller, { sandboxId: id, port: 80 }, {});
  await rig.control.ports.unexpose(rig.caller, { sandboxId: id, port: 80 }, {});
  expect(holder.revoked.aborted).toBe(true);
  expect((await rig.events('port.')).map(({ kind }) => kind)).toEqual([
    'port.exposed',
    'port.exposed',
    'port.unexposed',
  ]);
});

test('a repeat under an idempotency key is the same answer, token included', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const key = { sandboxId: id, port: 80 };
  await expose(id);
  const first = await rig.control.ports.rotate(rig.caller, key, { idempotencyKey: 'once' });
  expect(await rig.control.ports.rotate(rig.caller, key, { idempotencyKey: 'once' })).toEqual(first);
  const journal = await rig.store.read((tables) =>
    tables.operations.findByKey({ teamId: rig.caller.teamId, key: 'once' }),
  );
  expect(journal?.answer).not.toContain(first.token.slice(9));
});

test('a stopped sandbox lets nobody in and is not started; exposing and listing are possible', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { token } = await expose(id);
  await rig.stop(id);
  await expect(admit(id, token)).rejects.toMatchObject({ code: 'sandbox_wrong_state', details: { state: 'stopped' } });
  await expose(id, { port: 81 });
  expect(await rig.control.ports.list(rig.caller, id, {})).toMatchObject({
    listening: [],
    exposed: [{ port: 80 }, { port: 81 }],
  });
  expect(rig.node.calls).not.toContain('openPort');
  expect((await rig.get(id)).state).toBe('stopped');
});

test('changes need the lease that somebody holds, and the right team', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { token } = await expose(id);
  await rig.acquire([id]);
  await expect(expose(id, { port: 81 })).rejects.toMatchObject({ code: 'lease_held' });
  await expect(expose(id, { port: 81, generation: 9 })).rejects.toMatchObject({ code: 'stale_generation' });
  (await admit(id, token)).leave();
  const stranger = { ...rig.caller, teamId: newId('team') };
  const { ports } = rig.control;
  const key = { sandboxId: id, port: 80 };
  for (const call of [
    ports.expose(stranger, key, {}, {}),
    ports.unexpose(stranger, key, {}),
    ports.rotate(stranger, key, {}),
    ports.list(stranger, id, {}),
    ports.open(stranger, key, {}, new AbortController().signal),
  ]) {
    await expect(call).rejects.toMatchObject({ code: 'sandbox_not_found' });
  }
});

test('a sandbox has so many exposures and so many visitors, and no more', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  for (let port = 1; port <= portLimits.exposures; port++) await expose(id, { port });
  await expect(expose(id, { port: 9_999 })).rejects.toMatchObject({ code: 'limit_exceeded' });
  const { token } = await expose(id, { port: 1 });
  const inside = [];
  while (inside.length < portLimits.previewRequests) inside.push(await admit(id, token, 1));
  await expect(admit(id, token, 1)).rejects.toMatchObject({ code: 'limit_exceeded' });
  inside[0]!.leave();
  inside[0]!.leave();
  (await admit(id, token, 1)).leave();
});

test('a visitor who was looked up before a revocation is told of it, however close the two are', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  let { token } = await expose(id);
  const { store } = rig;
  const { read, transact } = store;
  for (let turns = 0; turns < 24; turns++) {
    const [lookedUp, changed] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    const isRead = Promise.withResolvers<void>();
    store.read = async (work) => {
      store.read = read;
      const found = await read.call(store, work);
      isRead.resolve();
      await lookedUp.promise;
      return found as never;
    };
    const admitting = admit(id, token);
    await isRead.promise;
    const isCommitted = Promise.withResolvers<void>();
    store.transact = async (work) => {
      const result = await transact.call(store, work);
      isCommitted.resolve();
      await changed.promise;
      return result as never;
    };
    const rotating = rig.control.ports.rotate(rig.caller, { sandboxId: id, port: 80 }, {});
    await isCommitted.promise;
    store.transact = transact;
    lookedUp.resolve();
    for (let i = 0; i < turns; i++) await null;
    changed.resolve();
    token = (await rotating).token;
    const outcome = await admitting.then(
      (inside) => inside.revoked.aborted,
      (error: { code: string }) => error.code === 'preview_token_invalid',
    );
    expect(outcome).toBe(true);
  }
});
