import { afterEach, expect, test } from 'vitest';
import { type FakeAnswer, type FakeInit, listenAsInit } from '../../test/support/fake-init.ts';
import { encodeFrame, u16, u32 } from '../base/index.ts';
import { InitClient } from './init-client.ts';

let init: FakeInit | undefined;
let client: InitClient | undefined;

afterEach(async () => {
  await client?.close();
  await init?.close();
  client = init = undefined;
});

async function connect(answer: FakeAnswer): Promise<InitClient> {
  init = await listenAsInit(answer);
  client = await InitClient.connect({ directory: init.directory, generation: 1 });
  return client;
}

const requestOf = (body: Buffer) => u32(body.readUInt32LE(0));

test('answers find their requests in any order', async () => {
  const held: Buffer[] = [];
  const on = await connect(({ frame, socket }) => {
    held.push(requestOf(frame.body));
    if (held.length === 2) for (const request of held.reverse()) socket.write(encodeFrame(20, request));
  });
  await Promise.all([
    on.control((connection) => connection.setFence(1)),
    on.control((connection) => connection.setDeadline(2)),
  ]);
  expect(held).toHaveLength(2);
});

test("init's error is a refusal with its code", async () => {
  const on = await connect(({ frame, socket }) => {
    socket.write(encodeFrame(21, requestOf(frame.body), u16(5), u32(0), Buffer.from('older')));
  });
  const refused = on.control((connection) => connection.setFence(1));
  await expect(refused).rejects.toMatchObject({ name: 'InitRefusal', refusal: { code: 5, text: 'older' } });
});

test('a lost connection is opened again, and the order is given again', async () => {
  let asked = 0;
  const on = await connect(({ frame, socket }) => {
    asked++;
    if (asked === 1) socket.destroy();
    else socket.write(encodeFrame(20, requestOf(frame.body)));
  });
  await on.control((connection) => connection.setFence(1));
  expect(asked).toBe(2);
});

test('an answer to a question nobody asked ends the connection', async () => {
  const on = await connect(({ socket }) => socket.write(encodeFrame(20, u32(77))));
  const asked = on.control((connection) => connection.status());
  await expect(asked).rejects.toMatchObject({ code: 'outcome_unknown' });
});

test('an init that goes away is noticed', async () => {
  const on = await connect(() => {});
  await init!.close();
  init = undefined;
  await on.gone;
  await expect(on.control((connection) => connection.status())).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  await expect(on.openControl()).rejects.toMatchObject({ code: 'sandbox_unavailable' });
});
