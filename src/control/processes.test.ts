import { afterEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { lostAnswer } from '../../test/support/fake-node.ts';
import { type Conditions, newId, PlatformError, routes, type SandboxId } from '../protocol/index.ts';
import { parseOutputCursor, parseSignal, writeOutputCursor } from './process-views.ts';

let rig: ControlRig;
afterEach(() => rig.close());

const never = new AbortController().signal;

function start(sandboxId: SandboxId, conditions: Conditions = {}, command = ['sleep', '1']) {
  const body = routes.startProcess.body.parse({ command });
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

function keptAs(key: string) {
  return rig.store.read((tables) => tables.operations.findByKey({ teamId: rig.caller.teamId, key }));
}

/** As a crash leaves it that comes after the start and before its key is kept. */
async function loseKey(key: string): Promise<void> {
  await expect.poll(() => keptAs(key)).toBeDefined();
  const kept = await keptAs(key);
  await rig.store.transact((tables) => tables.operations.remove(kept!.id));
  await rig.restart();
}

test('K22: a start that names its life is one process under its key, also when the key was never kept', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const conditions = { idempotencyKey: 'once', generation };
  const first = await start(id, conditions);
  await loseKey('once');
  expect((await start(id, conditions)).id).toBe(first.id);
  expect(rig.node.processes.starts).toHaveLength(1);
  // Kept since.
  await expect(start(id, conditions, ['sleep', '2'])).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  // In a later life it is refused as what it is: of an earlier one.
  await loseKey('once');
  await rig.stop(id);
  await rig.start(id);
  await expect(start(id, conditions)).rejects.toMatchObject({ code: 'stale_generation' });
  expect(rig.node.processes.starts).toHaveLength(1);
});

test('K21: K22: another request under a key that was never kept is refused, and takes the key from nobody', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const conditions = { idempotencyKey: 'once', generation };
  const first = await start(id, conditions);
  await loseKey('once');
  await expect(start(id, conditions, ['sleep', '2'])).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  expect((await start(id, conditions)).id).toBe(first.id);
  expect(rig.node.processes.starts).toHaveLength(1);
});

test('K22: a start that names no life waits until its key is kept; the key of one that does is kept behind its answer', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const gate = rig.faults.hold('after-journal-operation');
  const waiting = start(id, { idempotencyKey: 'one' });
  await gate.reached;
  expect(rig.node.processes.starts).toEqual([]);
  gate.open();
  await waiting;

  const held = rig.faults.hold('before-store-answer');
  const conditions = { idempotencyKey: 'two', generation };
  const first = await start(id, conditions);
  // Until it is kept, a repeat is answered with the same, and another request is refused.
  expect((await start(id, conditions)).id).toBe(first.id);
  await expect(start(id, conditions, ['sleep', '2'])).rejects.toMatchObject({ code: 'idempotency_key_reused' });
  expect(await keptAs('two')).toBeUndefined();
  held.open();
  await expect.poll(async () => (await keptAs('two'))?.answer).toContain(first.id);
  expect((await start(id, conditions)).id).toBe(first.id);
  expect(rig.node.processes.starts).toHaveLength(2);
});

test('K22: what became of a start that failed is kept as for any other: a refusal for good, a doubt, or nothing', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const refusals = [
    { code: 'user_not_usable', isKept: true },
    { code: 'outcome_unknown', isKept: true },
    { code: 'sandbox_unavailable', isKept: false },
  ] as const;
  for (const { code, isKept } of refusals) {
    rig.node.fail('startProcess', { when: 'before', error: new PlatformError(code, 'As the test says.') });
    await expect(start(id, { idempotencyKey: code, generation })).rejects.toMatchObject({ code });
    await expect.poll(async () => (await keptAs(code)) !== undefined).toBe(isKept);
  }
  expect((await keptAs('user_not_usable'))?.answer).toContain('user_not_usable');
  expect((await keptAs('outcome_unknown'))?.answer).toBeNull();
  // The doubt is resumed, the refusal told again, and what left nothing is done.
  await expect(start(id, { idempotencyKey: 'user_not_usable', generation })).rejects.toMatchObject({
    code: 'user_not_usable',
  });
  await start(id, { idempotencyKey: 'outcome_unknown', generation });
  await start(id, { idempotencyKey: 'sandbox_unavailable', generation });
  expect(rig.node.processes.starts).toHaveLength(2);
});

test('a start with its output: the process comes first, then what it says; a repeat is answered with the same', async () => {
  rig = await ControlRig.open();
  const { id, generation } = await rig.create();
  const body = routes.startProcess.body.parse({ command: ['sleep', '1'] });
  const follow = () => {
    const conditions = { idempotencyKey: 'once', generation };
    return rig.control.processes.startAndFollow(rig.caller, id, conditions, body, never);
  };
  const items = follow();
  const first = (await items.next()).value;
  expect(first).toMatchObject({ kind: 'process', position: 0, process: { generation, running: true } });
  const { processId } = rig.node.processes.starts[0]!;
  rig.node.processes.write(processId, 'said');
  const said = { kind: 'output', stream: 'stdout', position: 4, cursor: `${processId}.4` };
  expect((await items.next()).value).toMatchObject(said);
  rig.node.processes.end(processId, 0);
  expect((await items.next()).value).toMatchObject({ kind: 'exited' });
  const again: string[] = [];
  for await (const item of follow()) again.push(item.kind);
  expect(again).toEqual(['process', 'output', 'exited', 'ended']);
  expect(rig.node.processes.starts).toHaveLength(1);
  await items.return();
});

test('a start with its output that is refused is refused before anything comes', async () => {
  rig = await ControlRig.open();
  const { id } = await rig.create();
  await rig.acquire([id]);
  const body = routes.startProcess.body.parse({ command: ['sleep', '1'] });
  const items = rig.control.processes.startAndFollow(rig.caller, id, {}, body, never);
  await expect(items.next()).rejects.toMatchObject({ code: 'lease_held' });
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
