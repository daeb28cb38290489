import { afterEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer } from '../../test/support/fake-node.ts';
import { type Conditions, newId, routes, type SandboxId } from '../protocol/index.ts';
import { parseOutputCursor, parseSignal, writeOutputCursor } from './process-views.ts';

let rig: ControlRig;
afterEach(() => rig.close());

const never = new AbortController().signal;

function start(sandboxId: SandboxId, conditions: Conditions = {}) {
  const body = routes.startProcess.body.parse({ command: ['sleep', '1'] });
  return rig.control.processes.start(rig.caller, sandboxId, conditions, body);
}

test('a start without a key writes nothing to the store', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const before = await rig.events();
  await start(id);
  expect(await rig.events()).toEqual(before);
});

test('a start whose answer was lost is the same process when it is repeated under its key', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  rig.node.fail('startProcess', { when: 'after', error: lostAnswer() });
  await expect(start(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  const again = await start(id, { idempotencyKey: 'once' });
  expect(rig.node.processes.starts.map(({ processId }) => processId)).toEqual([again.id]);
  expect(await start(id, { idempotencyKey: 'once' })).toEqual(again);
});

test('a start that was cut off in an earlier life is in doubt, and not made in this one', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  rig.node.fail('startProcess', { when: 'before', error: lostAnswer() });
  await expect(start(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'outcome_unknown' });
  await rig.stop(id);
  await rig.start(id);
  await expect(start(id, { idempotencyKey: 'once' })).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect(rig.node.processes.starts).toEqual([]);
});

test('what changes a process needs the lease and the life; what looks at it does not', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const process = (await start(id)).id;
  await rig.acquire([id]);
  const { processes } = rig.control;
  const address = { sandboxId: id, process };
  const term = routes.signalProcess.body.parse({});
  await expect(start(id)).rejects.toMatchObject({ code: 'lease_held' });
  await expect(processes.signal(rig.caller, address, {}, term)).rejects.toMatchObject({ code: 'lease_held' });
  await expect(processes.remove(rig.caller, address, { generation: 9 })).rejects.toMatchObject({
    code: 'stale_generation',
  });
  expect((await processes.get(rig.caller, address, {})).id).toBe(process);
  const query = { encoding: 'utf8' } as const;
  expect((await processes.output(rig.caller, address, {}, query, never)).items).toEqual([]);
});

test('a look that names an earlier life is refused as stale, also after the sandbox was started again', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const address = { sandboxId: id, process: (await start(id)).id };
  const { processes } = rig.control;
  expect((await processes.get(rig.caller, address, { generation })).id).toBe(address.process);
  await rig.stop(id);
  expect((await processes.get(rig.caller, address, { generation })).id).toBe(address.process);
  await rig.start(id);
  const stale = { code: 'stale_generation', details: { generation: generation + 1 } };
  const earlier = { generation };
  const query = { encoding: 'utf8' } as const;
  await expect(processes.get(rig.caller, address, earlier)).rejects.toMatchObject(stale);
  await expect(processes.output(rig.caller, address, earlier, query, never)).rejects.toMatchObject(stale);
  await expect(processes.follow(rig.caller, address, earlier, {}, never).next()).rejects.toMatchObject(stale);
  await expect(processes.list(rig.caller, id, earlier, { limit: 10 })).rejects.toMatchObject(stale);
  const wait = { for: 'exit', timeoutMs: 0 } as const;
  await expect(processes.wait(rig.caller, address, earlier, wait, never)).rejects.toMatchObject(stale);
  const port = { sandboxId: id, port: 80 };
  const probe = routes.probePort.query.parse({});
  await expect(processes.probePort(rig.caller, port, earlier, probe, never)).rejects.toMatchObject(stale);
});

test("another team's sandbox is not found, whatever is asked of its processes", async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  const process = (await start(id)).id;
  const stranger = { ...rig.caller, teamId: newId('team') };
  const address = { sandboxId: id, process };
  const { processes } = rig.control;
  const refused = { code: 'sandbox_not_found' };
  await expect(processes.get(stranger, address, {})).rejects.toMatchObject(refused);
  await expect(processes.output(stranger, address, {}, { encoding: 'utf8' }, never)).rejects.toMatchObject(refused);
  await expect(processes.list(stranger, id, {}, { limit: 10 })).rejects.toMatchObject(refused);
  await expect(processes.killAll(stranger, id, {}, { signal: 'KILL' })).rejects.toMatchObject(refused);
});

test('cursors carry their process, signals have names and numbers', async () => {
  rig = await ControlRig.open();
  const [one, two] = [newId('process'), newId('process')];
  expect(parseOutputCursor(one, writeOutputCursor(one, 42))).toBe(42);
  for (const cursor of [writeOutputCursor(two, 42), `${one}.`, `${one}.-1`, '42', '', `${one}.1.1`]) {
    expect(() => parseOutputCursor(one, cursor)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  }
  expect(['TERM', 'SIGKILL', 'RTMIN', 'SIGRTMIN+3', 12].map(parseSignal)).toEqual([15, 9, 34, 37, 12]);
  for (const signal of ['NOPE', 'RTMIN+99']) {
    expect(() => parseSignal(signal)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  }
});
