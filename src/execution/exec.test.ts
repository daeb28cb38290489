import type { Socket } from 'node:net';
import { constants } from 'node:os';
import fc from 'fast-check';
import { afterEach, expect, test } from 'vitest';
import { type FakeAnswer, type FakeInit, fakeFrames, listenAsInit } from '../../test/support/fake-init.ts';
import { encodeFrame, SystemClock, u16, u32 } from '../base/index.ts';
import { type ExecOrder, isPlatformError, newId } from '../protocol/index.ts';
import { exec } from './exec.ts';
import { InitClient } from './init-client.ts';

const { ENOENT, EACCES, E2BIG } = constants.errno;
let init: FakeInit | undefined;
let client: InitClient | undefined;

afterEach(async () => {
  await client?.close();
  await init?.close();
  client = init = undefined;
});

async function execWith(answer: FakeAnswer, overrides: Partial<ExecOrder> = {}, signal?: AbortSignal) {
  init = await listenAsInit(answer);
  client = await InitClient.connect({ directory: init.directory, generation: 1 });
  return await execOn(client, overrides, signal);
}

function execOn(on: InitClient, overrides: Partial<ExecOrder>, signal?: AbortSignal) {
  const order: ExecOrder = {
    sandboxId: newId('sandbox'),
    generation: 1,
    runId: 'run-1',
    leaseToken: null,
    command: ['true'],
    cwd: null,
    env: {},
    user: null,
    stdin: null,
    timeoutMs: null,
    outputLimitBytes: 100,
    ...overrides,
  };
  return exec({ client: on, clock: new SystemClock(), sandboxEnv: {}, token: 0 }, order, signal);
}

/** Answers RUN with these bytes. */
const saying =
  (...bytes: readonly Uint8Array[]): FakeAnswer =>
  ({ frame, socket }) => {
    if (frame.type === 40) socket.write(Buffer.concat(bytes));
  };

test('a whole run becomes an outcome', async () => {
  const outcome = await execWith(saying(fakeFrames.started(), fakeFrames.stdout('hello'), fakeFrames.exited(3 << 8)));
  expect(outcome).toMatchObject({ exitCode: 3, signal: null, killed: false, timedOut: false, stdoutTruncated: false });
  expect(Buffer.from(outcome.stdout).toString()).toBe('hello');
});

test('a command that was forced is answered when its tree is gone, not before', async () => {
  const release = Promise.withResolvers<void>();
  const outcome = execWith(({ frame, socket }) => {
    if (frame.type !== 40) return;
    socket.write(Buffer.concat([fakeFrames.started(), fakeFrames.exited(15, 1)]));
    void release.promise.then(() => socket.write(fakeFrames.treeEnded()));
  });
  let answered = false;
  void outcome.then(() => {
    answered = true;
  });
  for (let i = 0; i < 50; i++) await new Promise(setImmediate);
  expect(answered).toBe(false);
  release.resolve();
  expect(await outcome).toMatchObject({ timedOut: true, signal: 'SIGTERM', exitCode: 143 });
});

const refusals: readonly (readonly [code: number, errno: number, expected: string])[] = [
  [1, 0, 'invalid_command'],
  [2, 0, 'operation_in_doubt'],
  [3, 0, 'limit_exceeded'],
  [5, 0, 'lease_held'],
  [6, 0, 'sandbox_wrong_state'],
  [7, 0, 'stale_generation'],
  [8, ENOENT, 'cwd_not_usable'],
  [9, 0, 'user_not_usable'],
  [10, E2BIG, 'invalid_command'],
  [11, 11, 'limit_exceeded'],
  [12, 5, 'sandbox_unavailable'],
  [999, 0, 'sandbox_unavailable'],
];

for (const [code, errno, expected] of refusals) {
  test(`init's refusal ${code} becomes ${expected}`, async () => {
    await expect(execWith(saying(fakeFrames.refused(code, errno)))).rejects.toMatchObject({ code: expected });
  });
}

test('a fence that refuses a caller with a token means that its lease is lost', async () => {
  const refused = execWith(saying(fakeFrames.refused(5)), { leaseToken: 4 });
  await expect(refused).rejects.toMatchObject({ code: 'lease_lost' });
});

test('a program that cannot be started is a result', async () => {
  expect(await execWith(saying(fakeFrames.refused(10, EACCES)))).toMatchObject({ exitCode: 126, signal: null });
});

test('without bash a text goes to sh, under the same run id', async () => {
  const seen: string[] = [];
  const outcome = await execWith(
    ({ frame, socket }) => {
      if (frame.type !== 40) return;
      const text = frame.body.toString('latin1');
      seen.push(text.includes('/bin/bash') ? 'bash' : 'sh');
      expect(text).toContain('run-1');
      const bash = seen.length === 1;
      socket.write(bash ? fakeFrames.refused(10, ENOENT) : Buffer.concat([fakeFrames.started(), fakeFrames.exited(0)]));
    },
    { command: 'true' },
  );
  expect(outcome.exitCode).toBe(0);
  expect(seen).toEqual(['bash', 'sh']);
});

test('a connection that ends in the middle leaves the outcome unknown', async () => {
  const lost = execWith(({ frame, socket }) => {
    if (frame.type === 40) socket.end(fakeFrames.started());
  });
  await expect(lost).rejects.toMatchObject({ code: 'outcome_unknown' });
});

test('nobody there means that nothing ran', async () => {
  init = await listenAsInit(() => {});
  client = await InitClient.connect({ directory: init.directory, generation: 1 });
  await init.close();
  init = undefined;
  await client.gone;
  await expect(execOn(client, {})).rejects.toMatchObject({ code: 'sandbox_unavailable' });
});

test('an init of another life is not taken for this one', async () => {
  init = await listenAsInit(() => {}, { generation: 2 });
  await expect(InitClient.connect({ directory: init.directory, generation: 1 })).rejects.toThrow('generation 2');
});

test('arbitrary bytes of a hostile init give a result or a refusal, never a hang or a crash', async () => {
  let bytes = Buffer.alloc(0);
  init = await listenAsInit(({ frame, socket }) => {
    if (frame.type === 40) socket.end(bytes);
  });
  const { directory } = init;
  client = await InitClient.connect({ directory, generation: 1 });
  const on = client;
  const frameLike = fc
    .tuple(fc.integer({ min: 39, max: 50 }), fc.uint8Array({ maxLength: 30 }))
    .map(([type, body]) => Buffer.concat([lengthOf(body.length + 1), Buffer.of(type), body]));
  const hostile = fc.array(fc.oneof(frameLike, fc.uint8Array({ maxLength: 40 })), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(hostile, async (parts) => {
      bytes = Buffer.concat(parts);
      await execOn(on, {}).catch((error: unknown) => {
        if (!isPlatformError(error)) throw error;
      });
    }),
    { numRuns: 300 },
  );
});

function lengthOf(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

test('an abort is tried until init has begun the run, and goes over the control connection', async () => {
  const abort = new AbortController();
  let kills = 0;
  let run: Socket | undefined;
  const outcome = execWith(
    ({ frame, socket }) => {
      if (frame.type === 40) {
        run = socket;
        socket.write(fakeFrames.started());
        abort.abort();
      }
      if (frame.type !== 26) return;
      kills++;
      const request = frame.body.subarray(0, 4);
      if (kills === 1) {
        socket.write(encodeFrame(21, request, u16(4), u32(0)));
      } else {
        socket.write(encodeFrame(20, request));
        run?.write(Buffer.concat([fakeFrames.exited(9, 2), fakeFrames.treeEnded()]));
      }
    },
    { stdin: Buffer.alloc(2_000_000) },
    abort.signal,
  );
  expect(await outcome).toMatchObject({ killed: true, exitCode: 137, signal: 'SIGKILL' });
  expect(kills).toBe(2);
});
