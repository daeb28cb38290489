import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { type BodyInputOf, newId, routes } from '../protocol/index.ts';
import type { Caller } from './caller.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
});
afterEach(() => rig.close());

type KeyBody = Partial<BodyInputOf<typeof routes.createKey>>;
const createKey = (body: KeyBody = {}, caller: Caller = rig.caller, conditions = {}) =>
  rig.control.who.createKey(
    caller,
    conditions,
    routes.createKey.body.parse({ name: 'ci', scopes: ['sandboxes:read', 'keys:write'], ...body }),
  );
const authenticate = (key: string) => rig.control.who.authenticate(key);

test('a key is known by its text, in both spellings, and by nothing else', async () => {
  const { key, id } = await createKey();
  expect(key).toMatch(/^atoll_[0-9a-f]{40}$/);
  const caller = { keyId: id, teamId: rig.caller.teamId, scopes: ['sandboxes:read', 'keys:write'], sandboxId: null };
  expect(await authenticate(key)).toMatchObject(caller);
  expect(await authenticate(key.replace('atoll_', 'e2b_'))).toMatchObject(caller);
  const wrong = [key.slice(1), key.toUpperCase(), `${key}0`, `atoll_${'0'.repeat(40)}`, '', key.replace('_', '-')];
  for (const text of wrong) await expect(authenticate(text)).rejects.toMatchObject({ code: 'unauthenticated' });
  expect(await rig.control.who.me(await authenticate(key))).toMatchObject({ id, name: 'ci' });
  const stranger = { ...rig.caller, keyId: newId('key') };
  await expect(rig.control.who.me(stranger)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('the text of a key is shown again to a repeat under its idempotency key, and stored nowhere', async () => {
  const conditions = { idempotencyKey: 'k' };
  const made = await createKey({}, rig.caller, conditions);
  expect(await createKey({}, rig.caller, conditions)).toEqual(made);
  await rig.restart();
  expect(await createKey({}, rig.caller, conditions)).toEqual(made);
  const digits = made.key.slice('atoll_'.length);
  const operation = await rig.control.operations.get(rig.caller, 'key:k');
  expect(JSON.stringify(operation)).not.toContain(digits);
  const files = (await readdir(rig.directory, { withFileTypes: true })).filter((entry) => entry.isFile());
  for (const { name } of files) {
    expect((await readFile(join(rig.directory, name))).includes(digits)).toBe(false);
  }
});

test('a revoked key is refused at once, also one that was used a moment ago', async () => {
  const { key, id } = await createKey();
  await authenticate(key);
  await rig.control.who.revokeKey(rig.caller, {}, id);
  await expect(authenticate(key)).rejects.toMatchObject({ code: 'unauthenticated', message: /revoked/ });
  await rig.control.who.revokeKey(rig.caller, {}, id);
  const { items } = await rig.control.who.listKeys(rig.caller);
  expect(items.find((item) => item.id === id)?.revokedAt).toBe(new Date(rig.clock.nowMs()).toISOString());
});

test('a key that is being looked up while it is revoked does not live on', async () => {
  const { key, id } = await createKey();
  const read = rig.store.read.bind(rig.store);
  const gate = Promise.withResolvers<void>();
  const found = Promise.withResolvers<void>();
  rig.store.read = async (work) => {
    rig.store.read = read;
    const result = await read(work);
    found.resolve();
    await gate.promise;
    return result;
  };
  const early = authenticate(key);
  early.catch(() => {});
  await found.promise;
  await rig.control.who.revokeKey(rig.caller, {}, id);
  gate.resolve();
  await expect(early).rejects.toMatchObject({ code: 'unauthenticated' });
  await expect(authenticate(key)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('a key ends at its time', async () => {
  const { key } = await createKey({ expiresInMs: 10_000 });
  rig.clock.step(9_999);
  await authenticate(key);
  rig.clock.step(1);
  await expect(authenticate(key)).rejects.toMatchObject({ code: 'unauthenticated', message: /expired/ });
});

test('nobody gives what they lack, and only an administrator makes keys for other teams', async () => {
  const limited = await authenticate((await createKey()).key);
  await expect(createKey({ scopes: ['sandboxes:read', 'sandboxes:exec', 'admin'] }, limited)).rejects.toMatchObject({
    code: 'forbidden',
    details: { missing: ['sandboxes:exec', 'admin'] },
  });
  await createKey({ scopes: ['sandboxes:read'] }, limited);
  const team = await rig.control.who.createTeam(rig.caller, {}, { name: 'b', diskBytes: null });
  await expect(createKey({ scopes: ['sandboxes:read'], teamId: team.id }, limited)).rejects.toMatchObject({
    code: 'forbidden',
  });
  const theirs = await createKey({ teamId: team.id });
  expect(await authenticate(theirs.key)).toMatchObject({ teamId: team.id });
  await expect(createKey({ teamId: newId('team') })).rejects.toMatchObject({ code: 'team_not_found' });
  const teams = (await rig.control.who.listTeams(rig.caller)).items.map((item) => item.name);
  expect(teams.sort()).toEqual(['b', 'default']);
});

test('a team sees, uses and revokes its own keys and sandboxes only; an administrator revokes any key', async () => {
  const team = await rig.control.who.createTeam(rig.caller, {}, { name: 'b', diskBytes: null });
  const { key, id } = await createKey({ teamId: team.id });
  const them = await authenticate(key);
  expect((await rig.control.who.listKeys(them)).items.map((item) => item.id)).toEqual([id]);
  const ours = await rig.create();
  await expect(rig.control.sandboxes.get(them, ours.id)).rejects.toMatchObject({ code: 'sandbox_not_found' });
  expect((await rig.control.sandboxes.list(them, { limit: 10 })).items).toEqual([]);
  await expect(rig.control.who.revokeKey(them, {}, rig.caller.keyId)).rejects.toMatchObject({ code: 'key_not_found' });
  await rig.control.who.revokeKey(rig.caller, {}, id);
  await expect(authenticate(key)).rejects.toMatchObject({ code: 'unauthenticated' });
});

test('keys may belong to a user of the team; "mine" lists what the user made, or the key where there is none', async () => {
  const user = await rig.control.who.createUser(rig.caller, {}, { name: 'ada' });
  expect((await rig.control.who.listUsers(rig.caller)).items).toEqual([user]);
  await expect(createKey({ userId: newId('user') })).rejects.toMatchObject({ code: 'user_not_found' });
  const [one, two] = await Promise.all([createKey({ userId: user.id }), createKey({ userId: user.id })]);
  const [first, second] = await Promise.all([authenticate(one.key), authenticate(two.key)]);
  const body = routes.createSandbox.body.parse({});
  const { view } = await rig.control.sandboxes.create(first, {}, body);
  expect(view).toMatchObject({ createdBy: one.id, userId: user.id });
  const keyed = await rig.create();
  const mine = async (caller: Caller) =>
    (await rig.control.sandboxes.list(caller, { limit: 10, mine: 'true' })).items.map((item) => item.id);
  expect(await mine(second)).toEqual([view.id]);
  expect(await mine(rig.caller)).toEqual([keyed.id]);
});

test('a token reaches one sandbox, ends by itself, and makes no other', async () => {
  const { id } = await rig.create();
  const make = (caller: Caller, body = {}) =>
    rig.control.who.createSandboxToken(caller, id, {}, routes.createSandboxToken.body.parse(body));
  const { key } = await make(rig.caller, { scopes: ['sandboxes:read', 'keys:write'] });
  const token = await authenticate(key);
  expect(token).toMatchObject({ sandboxId: id, scopes: ['sandboxes:read', 'keys:write'] });
  await expect(make(token, { scopes: ['sandboxes:read'] })).rejects.toMatchObject({ code: 'forbidden' });
  await expect(createKey({ scopes: ['sandboxes:read'] }, token)).rejects.toMatchObject({ code: 'forbidden' });
  rig.clock.step(3600_000);
  await expect(authenticate(key)).rejects.toMatchObject({ code: 'unauthenticated' });
  const nowhere = rig.control.who.createSandboxToken(
    rig.caller,
    newId('sandbox'),
    {},
    routes.createSandboxToken.body.parse({}),
  );
  await expect(nowhere).rejects.toMatchObject({ code: 'sandbox_not_found' });
});

test('the first key is the same after every start, until it is revoked', async () => {
  const first = await rig.control.who.ensureFirstKey();
  await rig.restart();
  expect(await rig.control.who.ensureFirstKey()).toBe(first);
  await rig.control.who.revokeKey(rig.caller, {}, rig.caller.keyId);
  expect(await rig.control.who.ensureFirstKey()).toBeUndefined();
});
