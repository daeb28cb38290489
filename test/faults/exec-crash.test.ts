/** A command under an idempotency key, cut off by a crash of server or node, and its repeat: it runs at most once. */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { isPlatformError } from '../../src/protocol/index.ts';
import { briskSettings, impatient, interrupted, patience, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let id: string;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: briskSettings });
  id = (await platform.client.sandboxes.create()).id;
});
afterAll(() => platform.close());

const sandboxNow = () => platform.client.sandboxes.connect(id);

/** The lines that a command left, and how its repeat was answered. */
async function repeat(command: string, idempotencyKey: string, file: string) {
  const sandbox = await sandboxNow();
  const answer = await untilAnswered(() => sandbox.exec(command, { idempotencyKey })).then(
    (result) => ({ exitCode: result.exitCode as number | null, stdout: result.stdout, isInDoubt: false }),
    (error: unknown) => {
      if (!isPlatformError(error, 'operation_in_doubt')) throw error;
      return { exitCode: error.details['exitCode'] as number | null, stdout: '', isInDoubt: true };
    },
  );
  const { stdout } = await sandbox.exec(`cat ${file} 2>/dev/null`);
  return { ...answer, lines: stdout.split('\n').length - 1 };
}

const serverPoints = [
  ['after-journal-operation', 'answered'],
  ['before-exec-on-node', 'answered'],
  ['after-exec-on-node', 'in doubt'],
  ['before-store-answer', 'in doubt'],
  ['before-store-answer>store-before-commit', 'in doubt'],
  ['before-store-answer>store-after-commit', 'answered'],
  ['after-store-answer', 'answered'],
] as const;
for (const [point, wanted] of serverPoints) {
  test(`K22: a server killed at "${point}" of exec: it ran once, and the repeat is ${wanted}`, async () => {
    await platform.restartServer(`${point}=crash`);
    const key = randomUUID();
    const command = `echo ran >> /tmp/${key}; echo said; exit 7`;
    const sandbox = await impatient(platform).sandboxes.connect(id);
    await interrupted(platform.server, sandbox.exec(command, { idempotencyKey: key }));
    await platform.startServer();

    const answer = await repeat(command, key, `/tmp/${key}`);
    expect(answer).toMatchObject({ lines: 1, exitCode: 7, isInDoubt: wanted === 'in doubt' });
    if (wanted === 'answered') expect(answer.stdout).toBe('said\n');
    expect(await repeat(command, key, `/tmp/${key}`)).toEqual(answer);
  });
}

test('K22: K46: a server killed while a command runs: it goes on, and its exit code is known when it ends', async () => {
  const key = randomUUID();
  const command = `echo ran >> /tmp/${key}; while [ ! -e /tmp/${key}.go ]; do sleep 0.02; done; exit 9`;
  const sandbox = await impatient(platform).sandboxes.connect(id);
  const lost = sandbox.exec(command, { idempotencyKey: key });
  await vi.waitFor(async () => expect((await sandbox.exec(`cat /tmp/${key}`)).stdout).toBe('ran\n'), patience);
  platform.server.child.kill('SIGKILL');
  await interrupted(platform.server, lost);
  await platform.startServer();

  expect(await repeat(command, key, `/tmp/${key}`)).toMatchObject({ lines: 1, isInDoubt: true, exitCode: null });
  await (await sandboxNow()).exec(`touch /tmp/${key}.go`);
  await vi.waitFor(
    async () =>
      expect(await repeat(command, key, `/tmp/${key}`)).toMatchObject({ lines: 1, isInDoubt: true, exitCode: 9 }),
    patience,
  );
});

test('K22: K46: a node killed while a command runs: the caller hears that nobody knows, and it is not run again', async () => {
  const key = randomUUID();
  const command = `echo ran >> /tmp/${key}; while [ ! -e /tmp/${key}.go ]; do sleep 0.02; done; exit 11`;
  const sandbox = await impatient(platform).sandboxes.connect(id);
  const lost = sandbox.exec(command, { idempotencyKey: key });
  await vi.waitFor(async () => expect((await sandbox.exec(`cat /tmp/${key}`)).stdout).toBe('ran\n'), patience);
  platform.node!.child.kill('SIGKILL');
  expect(await interrupted(platform.node!, lost)).toEqual({ code: 'outcome_unknown' });
  await platform.startNode();

  expect(await repeat(command, key, `/tmp/${key}`)).toMatchObject({ lines: 1, isInDoubt: true, exitCode: null });
  await (await sandboxNow()).exec(`touch /tmp/${key}.go`);
  await vi.waitFor(
    async () => expect(await repeat(command, key, `/tmp/${key}`)).toMatchObject({ lines: 1, exitCode: 11 }),
    patience,
  );
});

test('K22: a command that was cut off is in doubt in a later life of its sandbox, and does not run there', async () => {
  const sandbox = await platform.client.sandboxes.create();
  await platform.restartServer('after-journal-operation=crash');
  const key = randomUUID();
  const cutOff = (await impatient(platform).sandboxes.connect(sandbox.id)).exec('echo ran >> /root/ran', {
    idempotencyKey: key,
  });
  await interrupted(platform.server, cutOff);
  await platform.startServer();
  const next = await platform.client.sandboxes.connect(sandbox.id);
  const first = next.generation;
  await next.stop();
  await next.start();

  const again = next.exec('echo ran >> /root/ran', { idempotencyKey: key, generation: first });
  await expect(again).rejects.toMatchObject({ code: 'operation_in_doubt' });
  expect((await next.exec('cat /root/ran')).exitCode).toBe(1);
  await next.delete();
});
