/** Checkpoint, pause, resume, restore and fork, cut off by a SIGKILL of the server at every durable step, and their repeats under the same key. */
import { deepEqual } from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { Sandbox } from '../../src/sdk/index.ts';
import {
  briskSettings,
  eventually,
  expectOnly,
  impatient,
  interrupted,
  removeSandboxes,
  untilAnswered,
  withNode,
} from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: { ...briskSettings, retentionIntervalMs: 300 } });
});
afterEach(async () => {
  await removeSandboxes(platform);
  for (const { id } of (await platform.client.checkpoints.list()).items) await platform.client.checkpoints.delete(id);
});
afterAll(() => platform.close());

/** A sandbox with a file and a process, and a checkpoint of another state of the file. */
async function prepare(): Promise<{ sandbox: Sandbox; checkpointId: string }> {
  const sandbox = await platform.client.sandboxes.create({ metadata: { kept: 'yes' } });
  await sandbox.files.write('/workspace/file', 'earlier');
  const { id: checkpointId } = await sandbox.checkpoints.create();
  await sandbox.files.write('/workspace/file', 'live');
  return { sandbox, checkpointId };
}

type Prepared = Awaited<ReturnType<typeof prepare>>;
interface Change {
  readonly points: readonly string[];
  readonly first?: (sandbox: Sandbox) => Promise<unknown>;
  readonly ask: (prepared: Prepared, sandbox: Sandbox, idempotencyKey: string) => Promise<unknown>;
  readonly file: string;
  readonly generation: number;
  readonly state: string;
  readonly forks?: number;
  readonly checkpoints?: number;
}

const mode = 'files';
const changes: Record<string, Change> = {
  checkpoint: {
    points: ['after-store-checkpoint', 'after-checkpoint-on-node'],
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.checkpoints.create({ idempotencyKey }),
    ...{ file: 'live', generation: 1, state: 'running', checkpoints: 2 },
  },
  pause: {
    points: ['after-store-pausing', 'after-pause-on-node'],
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.pause({ idempotencyKey }),
    ...{ file: 'live', generation: 1, state: 'paused' },
  },
  'pause of files': {
    points: ['after-store-pausing', 'after-pause-on-node'],
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.pause({ idempotencyKey, mode }),
    ...{ file: 'live', generation: 1, state: 'paused' },
  },
  resume: {
    points: ['after-store-resuming', 'after-resume-on-node'],
    first: (sandbox) => sandbox.pause(),
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.resume({ idempotencyKey }),
    ...{ file: 'live', generation: 1, state: 'running' },
  },
  'resume of files': {
    points: ['after-store-resuming', 'after-resume-on-node'],
    first: (sandbox) => sandbox.pause({ mode }),
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.resume({ idempotencyKey }),
    ...{ file: 'live', generation: 2, state: 'running' },
  },
  restore: {
    points: ['after-store-restoring', 'after-restore-on-node', 'before-store-answer'],
    ask: ({ checkpointId }, sandbox, idempotencyKey) => sandbox.restore(checkpointId, { idempotencyKey }),
    ...{ file: 'earlier', generation: 2, state: 'running' },
  },
  fork: {
    points: ['after-store-checkpoint', 'after-fork-checkpoint', 'after-create-on-node', 'after-forks-made'],
    ask: (_prepared, sandbox, idempotencyKey) => sandbox.fork({ count: 2, idempotencyKey }),
    ...{ file: 'live', generation: 1, state: 'running', forks: 2 },
  },
};

for (const [kind, change] of Object.entries(changes)) {
  for (const point of change.points) {
    test(`K40: K22: a server killed at "${point}" of a ${kind}: a repeat does it once, and nothing is left over`, async () => {
      const prepared = await prepare();
      const { id } = prepared.sandbox;
      await change.first?.(prepared.sandbox);
      await platform.restartServer(`${point}=crash`);
      const key = randomUUID();
      const cutOff = await impatient(platform).sandboxes.connect(id);
      await interrupted(platform.server, change.ask(prepared, cutOff, key));
      await platform.startServer();

      // The key is of a request of that life: the repeat is the same request.
      await untilAnswered(() => change.ask(prepared, handleOf(cutOff), key));

      const { items } = await platform.client.sandboxes.list();
      const source = items.find((item) => item.id === id)!;
      expect(source).toMatchObject({ state: change.state, generation: change.generation, metadata: { kept: 'yes' } });
      const forks = items.filter((item) => item.id !== id);
      expect(forks.map(({ state }) => state)).toEqual(Array.from({ length: change.forks ?? 0 }, () => 'running'));
      const again = await platform.client.sandboxes.connect(id);
      if (change.state === 'paused') await again.resume();
      for (const one of [
        again,
        ...(await Promise.all(forks.map((fork) => platform.client.sandboxes.connect(fork.id)))),
      ]) {
        expect(await one.files.readText('/workspace/file')).toBe(change.file);
      }
      await expectCheckpoints(change.checkpoints ?? 1);
      await expectOnly(
        platform,
        items.map((item) => item.id),
      );
    });
  }
}

test('K40: K18: a server killed in the middle, and nobody asks again: each sandbox is as before or as after', async () => {
  for (const [point, ask, states] of [
    ['after-store-pausing', (one: Sandbox) => one.pause(), ['running', 'paused']],
    ['after-store-checkpoint', (one: Sandbox) => one.fork({ count: 2 }), ['running']],
  ] as const) {
    const { sandbox } = await prepare();
    await platform.restartServer(`${point}=crash`);
    const cutOff = await impatient(platform).sandboxes.connect(sandbox.id);
    await interrupted(platform.server, ask(cutOff));
    await platform.startServer();
    await eventually(async () => {
      const { state } = await platform.client.sandboxes.get(sandbox.id);
      expect(states).toContain(state);
      expect((await platform.client.reconcile({ dryRun: true })).actions).toEqual([]);
    });
  }
});

/** The same request again, from a client of the server as it is now. */
function handleOf(sandbox: Sandbox): Sandbox {
  return new Sandbox(impatient(platform).connection, sandbox.view);
}

/** Records and node have as many, of the same names. */
async function expectCheckpoints(count: number): Promise<void> {
  await eventually(async () => {
    const { items } = await platform.client.checkpoints.list();
    const onNode = await withNode(platform, (node) => node.branches.listCheckpoints());
    deepEqual(onNode.map(({ checkpointId }) => checkpointId).sort(), items.map((item) => item.id).sort());
    deepEqual(items.length, count);
  });
}
