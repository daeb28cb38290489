/** What the node makes of what happens around a start or a delete; init is a fake that starts whatever it is asked to. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { type FakeInit, fakeFrames, listenAsInit } from '../../test/support/fake-init.ts';
import { createOrder } from '../../test/support/node-orders.ts';
import { encodeFrame, silentLogger, u16, u32 } from '../base/index.ts';
import { InitClient, refusalCodes } from '../execution/index.ts';
import { newId, PlatformError } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { SandboxProcesses } from './sandbox-processes.ts';

const base = createOrder();
const { sandboxId, generation } = base;
const life = { sandboxId, generation };
const record: NodeRecord = {
  ...{ format: 2, mark: base.mark, spec: base.spec, generation, version: 1, settings: base.settings },
  ...{ writable: newId('writable'), fromCheckpoint: null },
  ...{ deadlineBootMs: 0, layers: ['host-0'], usrLayers: ['/usr'], slot: 0, bootId: 'boot', life: { kind: 'running' } },
};
const signalFrame = 26;

let directory: string;
let init: FakeInit;
let client: InitClient;
let processes: SandboxProcesses;
let starts: number;
let signals: number;
/** The fault point at which the node begins to close. */
let closesAt: string | undefined;
let isClosing: boolean;

beforeEach(async () => {
  [starts, signals, closesAt, isClosing] = [0, 0, undefined, false];
  directory = await mkdtemp(join(tmpdir(), 'atoll-sandbox-sessions-'));
  init = await listenAsInit(({ kind, frame, socket }) => {
    if (kind === 2) {
      starts++;
      socket.write(fakeFrames.started());
      return;
    }
    const request = u32(frame.body.readUInt32LE(0));
    if (frame.type !== signalFrame) socket.write(encodeFrame(20, request));
    else {
      signals++;
      socket.write(encodeFrame(21, request, u16(refusalCodes.noSuchRun), u32(0), Buffer.from('gone')));
    }
  });
  client = await InitClient.connect({ directory: init.directory, generation });
  processes = new SandboxProcesses({
    get: () => {
      if (isClosing) throw new PlatformError('shutting_down', 'The node is closing.');
      return { record, client, directory };
    },
    clock: new FakeClock(),
    log: silentLogger,
    faults: {
      hit: async (name) => {
        if (name === closesAt) isClosing = true;
      },
    },
    removeTree: (path) => rm(path, { recursive: true, force: true }),
  });
});
afterEach(async () => {
  await processes.close();
  await client.close();
  await init.close();
  await rm(directory, { recursive: true });
});

const create = (name: string) =>
  processes.sessions.createSession({
    ...{ ...life, sessionId: newId('session'), name, leaseToken: null },
    ...{ cwd: null, env: {}, user: null, timeoutMs: null, shell: null },
  });

test('a session that was made when the node began to close is answered, without where it is', async () => {
  closesAt = 'node-session-after-start';
  expect(await create('work')).toMatchObject({ name: 'work', pid: 7, cwd: null, end: null });
  expect(isClosing).toBe(true);
});

test('a process that was started when the node began to close is answered, and its record stays', async () => {
  await create('work');
  closesAt = 'node-process-before-start';
  const order = {
    ...{ ...life, session: 'work', processId: newId('process'), leaseToken: null, queueTimeoutMs: null },
    ...{ name: null, command: 'true', cwd: null, env: {}, stdinOpen: false, timeoutMs: null, graceMs: 0 },
    ...{ keepBytes: 65_536, autoCleanup: false, detach: false },
  };
  expect(await processes.sessions.startSessionProcess(order)).toMatchObject({ pid: 7 });
  expect(starts).toBe(2);
  isClosing = false;
  expect(await processes.getProcess({ ...life, process: order.processId })).toMatchObject({ pid: 7, exit: null });
});

test('a session whose end nobody saw is killed all the same when it is deleted', async () => {
  const { sessionId } = await create('work');
  // A node that is started again asks init, which does not have it.
  await processes.sessions.close();
  const found = await processes.sessions.getSession({ ...life, session: 'work' });
  expect(found).toMatchObject({ sessionId, end: { reason: 'crashed', exitCode: null } });
  await processes.sessions.deleteSession({ ...life, session: 'work', leaseToken: null });
  expect(signals).toBe(1);
  const gone = processes.sessions.getSession({ ...life, session: sessionId });
  await expect(gone).rejects.toMatchObject({ code: 'session_not_found' });
});
