import { afterEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { type Conditions, isId, newId, routes, type SandboxId } from '../protocol/index.ts';
import { parsePlace, writePlace } from './terminal-views.ts';

let rig: ControlRig;
afterEach(() => rig?.close());

const never = new AbortController().signal;

function open(sandboxId: SandboxId, body: object = {}, conditions: Conditions = {}) {
  return rig.control.terminals.open(rig.caller, sandboxId, conditions, routes.openTerminal.body.parse(body));
}

const query = (given: object = {}) => routes.attachTerminal.query.parse(given);

test('an open under a key is the same terminal when it is repeated, and one of the same handle is found', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const first = await open(id, {}, { idempotencyKey: 'once' });
  expect(first.created).toBe(true);
  expect(await open(id, {}, { idempotencyKey: 'once' })).toEqual(first);
  const named = await open(id, { id: 'mine' });
  expect((await open(id, { id: 'mine' })).view.id).toBe(named.view.id);
  expect((await open(id, { id: named.view.id })).created).toBe(false);
  await expect(open(id, { id: newId('terminal') })).rejects.toMatchObject({ code: 'terminal_not_found' });
  expect(rig.node.terminals.opens).toHaveLength(2);
});

test('what changes a terminal needs the lease and the life; what looks at it does not', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { view } = await open(id);
  const address = { sandboxId: id, terminal: view.id };
  await rig.acquire([id]);
  const { terminals } = rig.control;
  const body = { columns: 5, rows: 5 };
  await expect(terminals.resize(rig.caller, address, {}, body)).rejects.toMatchObject({ code: 'lease_held' });
  await expect(terminals.destroy(rig.caller, address, {}, { graceMs: 0 })).rejects.toMatchObject({
    code: 'lease_held',
  });
  await expect(open(id)).rejects.toMatchObject({ code: 'lease_held' });
  expect(await terminals.get(rig.caller, address)).toEqual(view);
  expect((await terminals.list(rig.caller, id)).items).toEqual([view]);
  await expect(terminals.attach(rig.caller, address, { generation: 9 }, query(), never)).rejects.toMatchObject({
    code: 'stale_generation',
  });
});

test('an attachment types, and reads from where it is told', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const { view } = await open(id, { id: 'mine' });
  const address = { sandboxId: id, terminal: 'mine' };
  const over = new AbortController();
  const first = await rig.control.terminals.attach(rig.caller, address, {}, query(), over.signal);
  await first.write(Buffer.from('typed'));
  const items = first.items[Symbol.asyncIterator]();
  expect((await items.next()).value).toMatchObject({ kind: 'output', cursor: `${view.id}.5.0` });
  const cursor = `${view.id}.0.2`;
  const second = await rig.control.terminals.attach(rig.caller, address, {}, query({ cursor }), over.signal);
  expect(second.cursor).toBe(cursor);
  const { value } = await second.items[Symbol.asyncIterator]().next();
  expect(Buffer.from((value as { bytes: Uint8Array }).bytes).toString()).toBe('ped');
  await second.signal({ signal: 'INT', target: 'foreground' });
  expect(rig.node.terminals.signals).toEqual([{ signal: 2, target: 'foreground' }]);
  over.abort();
});

test('a cursor belongs to one terminal', () => {
  const [one, other] = [newId('terminal'), newId('terminal')];
  expect(isId('terminal', one)).toBe(true);
  expect(parsePlace(one, writePlace(one, { cursor: 12, skip: 3 }))).toEqual({ cursor: 12, skip: 3 });
  for (const cursor of [writePlace(other, { cursor: 12, skip: 3 }), `${one}.12`, `${one}.x.0`, `${one}.1.-1`, '']) {
    expect(() => parsePlace(one, cursor)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  }
});
