import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import type { EventView, SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open({ settings: { eventsKept: 10 } });
});
afterEach(() => rig.close());

const list = (query: { after?: number; sandboxId?: SandboxId } = {}) =>
  rig.control.events.list(rig.caller, { limit: 1_000, ...query });

/** Reads a stream until `count` events have come, and says which. */
async function follow(from: { after?: number; sandboxId?: SandboxId }, count: number): Promise<EventView[]> {
  const seen: EventView[] = [];
  const reader = new AbortController();
  for await (const event of rig.control.events.follow(rig.caller, from, reader.signal)) {
    seen.push(event);
    if (seen.length === count) reader.abort();
  }
  return seen;
}

test('events come in order, each with the state that it led to', async () => {
  const { id } = await rig.create();
  await rig.patch(id, { a: '1' });
  await rig.stop(id);
  await rig.start(id);
  await rig.delete(id);
  const { items, last } = await list();
  expect(items.map((event) => event.kind)).toEqual([
    'sandbox.created',
    'sandbox.updated',
    'sandbox.stopping',
    'sandbox.stopped',
    'sandbox.starting',
    'sandbox.started',
    'sandbox.deleting',
    'sandbox.deleted',
  ]);
  expect(items.map((event) => event.sequence)).toEqual(items.map((_, index) => index + 1));
  expect(last).toBe(8);
  expect(items.map((event) => event.data['version'])).toEqual([2, 3, 4, 5, 6, 7, 8, 8]);
  expect(items.map((event) => event.data['state'])).toEqual([
    ...['running', 'running', 'stopping', 'stopped', 'starting', 'running', 'deleting', 'deleting'],
  ]);
});

test('a follower that resumes after the last event it saw misses none and sees none twice', async () => {
  const { id } = await rig.create();
  for (let index = 0; index < 4; index++) await rig.patch(id, { a: `${index}` });
  const first = await follow({ after: 0 }, 2);
  const second = await follow({ after: first.at(-1)!.sequence }, 3);
  expect([...first, ...second].map((event) => event.sequence)).toEqual([1, 2, 3, 4, 5]);
});

test('a follower is told what happens while it listens, of the sandbox it asked for', async () => {
  const [one, two] = [await rig.create(), await rig.create()];
  const following = follow({ sandboxId: one.id }, 2);
  await expect.poll(() => rig.control.eventFollowers).toBe(1);
  await rig.patch(two.id, { a: '1' });
  await rig.patch(one.id, { a: '1' });
  await rig.patch(one.id, { a: '2' });
  expect((await following).map((event) => [event.sandboxId, event.sequence])).toEqual([
    [one.id, 4],
    [one.id, 5],
  ]);
});

test('what is committed between the reading and the waiting wakes the follower', async () => {
  const { id } = await rig.create();
  const read = rig.store.read.bind(rig.store);
  const reader = new AbortController();
  const events = rig.control.events.follow(rig.caller, { after: 1 }, reader.signal)[Symbol.asyncIterator]();
  let reads = 0;
  rig.store.read = async (work) => {
    const result = await read(work);
    // The second is the look for events: it found none, and now there is one.
    if (++reads === 2) {
      rig.store.read = read;
      await rig.patch(id, { a: '1' });
    }
    return result;
  };
  expect((await events.next()).value).toMatchObject({ sequence: 2 });
  reader.abort();
});

test('what is no longer kept is refused, not skipped, and the first that is kept is told', async () => {
  const { id } = await rig.create();
  for (let index = 0; index < 14; index++) await rig.patch(id, { a: `${index}` });
  await rig.control.operations.trim();
  await expect(list({ after: 4 })).rejects.toMatchObject({ code: 'output_dropped', details: { first: 6 } });
  await expect(follow({ after: 4 }, 1)).rejects.toMatchObject({ code: 'output_dropped' });
  expect((await list({ after: 5 })).items).toHaveLength(10);
  expect((await list()).items[0]!.sequence).toBe(6);
  await expect(follow({ after: 99 }, 1)).rejects.toMatchObject({ code: 'invalid_request' });
});

test("a follower loses nothing when others' events are dropped", async () => {
  const [quiet, busy] = [await rig.create(), await rig.create()];
  const following = follow({ sandboxId: quiet.id }, 1);
  await expect.poll(() => rig.control.eventFollowers).toBe(1);
  for (let index = 0; index < 14; index++) await rig.patch(busy.id, { a: `${index}` });
  await rig.control.operations.trim();
  await rig.patch(quiet.id, { a: '1' });
  expect(await following).toMatchObject([{ sandboxId: quiet.id }]);
});

test('a follower that goes away leaves nothing behind, and one that is late ends with the server', async () => {
  const reader = new AbortController();
  const events = rig.control.events.follow(rig.caller, {}, reader.signal)[Symbol.asyncIterator]();
  const next = events.next();
  await expect.poll(() => rig.control.eventFollowers).toBe(1);
  reader.abort();
  expect(await next).toMatchObject({ done: true });
  expect(rig.control.eventFollowers).toBe(0);
  const gone = rig.control.events.follow(rig.caller, {}, AbortSignal.abort())[Symbol.asyncIterator]();
  expect(await gone.next()).toMatchObject({ done: true });
});
