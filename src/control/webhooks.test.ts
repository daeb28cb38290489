import { createHmac } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../test/support/control-rig.ts';
import { newId, type SandboxId } from '../protocol/index.ts';

let rig: ControlRig;
let id: SandboxId;
beforeEach(async () => {
  rig = await ControlRig.open();
  ({ id } = await rig.create());
});
afterEach(() => rig.close());

const url = 'https://example.com/hook';
const create = (kinds: string[] = [], conditions = {}) =>
  rig.control.webhooks.create(rig.caller, conditions, { url, kinds });
/** Time moves by jumps of the time of day here, which wakes no timer: only this delivers. */
const tick = () => rig.control.webhooks.tick(new AbortController().signal);
const patch = (value: string) => rig.patch(id, { value });
const delivered = () =>
  rig.deliveries.map(({ body }) => (JSON.parse(body) as { data: { metadata: { value: string } } }).data.metadata.value);
const only = async () => (await rig.control.webhooks.list(rig.caller)).items[0]!;
function refuseNext(message = 'The receiver said 500.'): void {
  const { deliver } = rig;
  rig.deliver = () => {
    rig.deliver = deliver;
    return Promise.reject(new Error(message));
  };
}

test('events since the webhook was made are delivered in order, and none again', async () => {
  await create();
  for (const value of ['1', '2', '3']) await patch(value);
  await tick();
  await tick();
  expect(delivered()).toEqual(['1', '2', '3']);
  expect(await only()).toMatchObject({ cursor: 4, failures: 0, lastError: null });
});

test('a webhook takes the kinds it asked for', async () => {
  await create(['sandbox.stopped']);
  await patch('1');
  await rig.stop(id);
  await tick();
  expect(rig.deliveries.map(({ headers }) => headers['Atoll-Event'])).toEqual(['sandbox.stopped']);
});

test('what is delivered is signed with the secret, which is shown once', async () => {
  const { secret } = await create();
  await patch('1');
  await tick();
  const [{ headers, body }] = rig.deliveries as [(typeof rig.deliveries)[0]];
  const [, time, signature] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(headers['Atoll-Signature']!)!;
  expect(signature).toBe(createHmac('sha256', secret).update(`${time}.${body}`).digest('hex'));
  expect(Number(time)).toBe(Math.floor(rig.clock.nowMs() / 1000));
  expect(headers['Atoll-Event-Id']).toBe('2');
  expect(JSON.stringify(await rig.control.webhooks.list(rig.caller))).not.toContain(secret);
});

test('a repeat under an idempotency key is the same webhook with the same secret', async () => {
  const made = await create([], { idempotencyKey: 'k' });
  expect(await create([], { idempotencyKey: 'k' })).toEqual(made);
  expect((await rig.control.webhooks.list(rig.caller)).items).toHaveLength(1);
});

test('what fails is tried again after growing pauses, and nothing behind it goes before it', async () => {
  await create();
  await patch('1');
  await patch('2');
  for (const pauseMs of [1_000, 2_000, 4_000]) {
    refuseNext();
    expect(await tick()).toBe(rig.clock.nowMs() + pauseMs);
    rig.clock.jump(pauseMs - 1);
    await tick();
    expect(delivered()).toEqual([]);
    rig.clock.jump(1);
  }
  expect(await only()).toMatchObject({ failures: 3, lastError: 'The receiver said 500.' });
  await tick();
  expect(delivered()).toEqual(['1', '2']);
  expect(await only()).toMatchObject({ failures: 0, lastError: null });
});

test('the pauses have a limit, and so has what is kept of an error', async () => {
  await create();
  await patch('1');
  for (let time = 0; time < 12; time++) {
    refuseNext('x'.repeat(10_000));
    rig.clock.jump(10 * 60_000);
    expect((await tick())! - rig.clock.nowMs()).toBeLessThanOrEqual(10 * 60_000);
  }
  expect((await only()).lastError).toHaveLength(500);
});

test("one receiver's trouble does not hold up another", async () => {
  await rig.control.webhooks.create(rig.caller, {}, { url: 'https://example.com/bad', kinds: [] });
  await create();
  await patch('1');
  const { deliver } = rig;
  rig.deliver = (delivery) => (delivery.url.endsWith('bad') ? Promise.reject(new Error('no')) : deliver(delivery));
  await tick();
  expect(delivered()).toEqual(['1']);
});

test('a restart goes on from the cursor; what was sent and not yet noted is sent again, in order', async () => {
  await create();
  for (const value of ['1', '2', '3']) await patch(value);
  const sent = Promise.withResolvers<void>();
  const { deliver } = rig;
  rig.deliver = async (delivery) => {
    await deliver(delivery);
    if (rig.deliveries.length < 2) return;
    sent.resolve();
    await new Promise(() => {});
  };
  void tick();
  await sent.promise;
  rig.deliver = deliver;
  // It delivers by itself when it is back.
  await rig.restart();
  await expect.poll(delivered).toEqual(['1', '2', '2', '3']);
});

test('a webhook that is deleted while it delivers is not brought back', async () => {
  const made = await create();
  await patch('1');
  await patch('2');
  const { deliver } = rig;
  rig.deliver = async (delivery) => {
    await deliver(delivery);
    await rig.control.webhooks.delete(rig.caller, {}, made.id);
  };
  await tick();
  expect(delivered()).toEqual(['1']);
  expect((await rig.control.webhooks.list(rig.caller)).items).toEqual([]);
  await expect(rig.control.webhooks.delete(rig.caller, {}, newId('webhook'))).rejects.toMatchObject({
    code: 'webhook_not_found',
  });
});

test('a delivery that the end of the server cut short is not counted as failed', async () => {
  await create();
  await patch('1');
  const closing = new AbortController();
  rig.deliver = async () => {
    closing.abort();
    throw new Error('Aborted.');
  };
  await rig.control.webhooks.tick(closing.signal);
  expect(await only()).toMatchObject({ failures: 0, lastError: null, cursor: 1 });
});

test('a team has a limited number of webhooks', async () => {
  await Promise.all(Array.from({ length: 100 }, () => create()));
  await expect(create()).rejects.toMatchObject({ code: 'limit_exceeded' });
});
