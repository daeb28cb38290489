/** Workspaces cut off by a SIGKILL of the server at every durable step, and their repeats under the same key. */
import { randomUUID } from 'node:crypto';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { type Atoll, isPlatformError, type Sandbox } from '../../src/sdk/index.ts';
import {
  briskSettings,
  eventually,
  impatient,
  interrupted,
  removeSandboxes,
  untilAnswered,
} from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';
import { tarOf } from '../support/workspace-content.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ node: 'process', settings: { ...briskSettings, retentionIntervalMs: 300 } });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

/** Two versions, and a sandbox that stands on the first with a change of its own. */
async function prepare(): Promise<{ name: string; sandboxId: string }> {
  const name = `site-${randomUUID().slice(0, 8)}`;
  const { workspaces, sandboxes } = platform.client;
  await workspaces.create(name, { content: 'none' });
  await workspaces.import(name, tarOf({ 'a.txt': 'one\n', 'b.txt': 'one\n' }), { kind: 'archive' });
  const sandbox = await sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
  await sandbox.files.write('/src/own.txt', 'own');
  await workspaces.import(name, tarOf({ 'a.txt': 'two\n', 'b.txt': 'one\n' }), { kind: 'archive' });
  return { name, sandboxId: sandbox.id };
}

type Prepared = Awaited<ReturnType<typeof prepare>>;
interface Change {
  readonly points: readonly string[];
  readonly ask: (client: Atoll, sandbox: Sandbox, prepared: Prepared, idempotencyKey: string) => Promise<unknown>;
  /** The head afterwards; null: the workspace is gone. */
  readonly head: number | null;
  /** What `cat a.txt own.txt` says in the checkout afterwards. */
  readonly files: string;
  /** What the sandbox stands on. */
  readonly base: number | null;
}

const changes: Record<string, Change> = {
  commit: {
    points: [
      'after-store-checkpoint',
      'after-collect-checkpoint',
      'after-hidden-sandbox-made',
      'after-version-held',
      'after-version-published',
      'before-release-holds',
      'before-store-answer',
    ],
    ask: (_client, sandbox, { name }, idempotencyKey) => sandbox.workspace(name).commit('Own', { idempotencyKey }),
    ...{ head: 3, files: 'one\nown', base: 3 },
  },
  update: {
    points: ['after-checkout-updated'],
    ask: (_client, sandbox, { name }, idempotencyKey) => sandbox.workspace(name).update({ idempotencyKey }),
    ...{ head: 2, files: 'two\nown', base: 2 },
  },
  drop: {
    points: ['after-checkout-dropped'],
    ask: (_client, sandbox, { name }, idempotencyKey) => sandbox.workspace(name).drop({ idempotencyKey }),
    ...{ head: 2, files: 'one\n', base: 1 },
  },
  revert: {
    points: ['after-version-held', 'after-version-published'],
    ask: (client, _sandbox, { name }, idempotencyKey) =>
      client.workspaces.revert(name, { version: 1 }, { idempotencyKey }),
    ...{ head: 3, files: 'one\nown', base: 1 },
  },
  import: {
    points: ['after-version-held', 'after-version-published'],
    ask: (client, _sandbox, { name }, idempotencyKey) =>
      client.workspaces.import(name, tarOf({ 'c.txt': 'c' }), { kind: 'archive', idempotencyKey }),
    ...{ head: 3, files: 'one\nown', base: 1 },
  },
  deletion: {
    points: ['after-store-workspace-deleting', 'after-workspace-removed-on-node'],
    ask: async (client, sandbox, { name }, idempotencyKey) => {
      await sandbox
        .workspace(name)
        .detach()
        .catch((error: unknown) => {
          if (!isPlatformError(error, 'workspace_not_found')) throw error;
        });
      await client.workspaces.delete(name, { idempotencyKey });
    },
    ...{ head: null, files: 'one\nown', base: null },
  },
};

for (const [kind, change] of Object.entries(changes)) {
  for (const point of change.points) {
    test(`C29: C32: a server killed at "${point}" in ${kind}: a repeat does it once, and nothing is left over`, async () => {
      const prepared = await prepare();
      const { name, sandboxId } = prepared;
      await platform.restartServer(`${point}=crash`);
      const key = randomUUID();
      const client = impatient(platform);
      const cutOff = await client.sandboxes.connect(sandboxId);
      await interrupted(platform.server, change.ask(client, cutOff, prepared, key));
      await platform.startServer();

      const sandbox = await platform.client.sandboxes.connect(sandboxId);
      await untilAnswered(() => change.ask(platform.client, sandbox, prepared, key));

      const found = await platform.client.workspaces.get(name).catch(() => undefined);
      expect(found?.head?.number ?? null).toBe(change.head);
      const { stdout } = await sandbox.exec('cd /src && cat a.txt own.txt 2>/dev/null');
      expect(stdout).toBe(change.files);
      expect((await sandbox.workspaces.list()).map(({ base }) => base.number)).toEqual(
        change.base === null ? [] : [change.base],
      );
      // Everything that is there is shown, and a round of reconcile has nothing to do.
      await eventually(async () => {
        const report = await platform.client.reconcile({ dryRun: true });
        expect(report.actions).toEqual([]);
        expect(report.checkpoints).toEqual([]);
      });
      if (kind !== 'commit') return;
      const again = await platform.client.sandboxes.create({ workspaces: [{ workspace: name, path: '/src' }] });
      expect((await again.exec(['git', '-C', '/src', 'status', '--porcelain'])).stdout).toBe('');
    });
  }
}

for (const point of ['after-store-workspace', 'after-workspace-on-node', 'after-version-published']) {
  test(`C72: a server killed at "${point}" of a create: a repeat makes one workspace with one version`, async () => {
    const name = `new-${randomUUID().slice(0, 8)}`;
    const key = { idempotencyKey: randomUUID() };
    await platform.restartServer(`${point}=crash`);
    await interrupted(platform.server, impatient(platform).workspaces.create(name, key));
    await platform.startServer();
    const made = await untilAnswered(() => platform.client.workspaces.create(name, key));
    expect(made).toMatchObject({ name, head: { number: 1 } });
    const { items } = await platform.client.workspaces.list({ limit: 1_000 });
    expect(items.filter((item) => item.name === name)).toHaveLength(1);
  });
}

for (const point of ['after-checkout-placed', 'before-store-answer']) {
  test(`a server killed at "${point}" of an attach: a repeat finds the files and records them once`, async () => {
    const { name } = await prepare();
    const sandbox = await platform.client.sandboxes.create();
    const key = { idempotencyKey: randomUUID(), path: '/later' };
    await platform.restartServer(`${point}=crash`);
    const cutOff = await impatient(platform).sandboxes.connect(sandbox.id);
    await interrupted(platform.server, cutOff.workspaces.attach(name, key));
    await platform.startServer();
    const there = await platform.client.sandboxes.connect(sandbox.id);
    expect(await untilAnswered(() => there.workspaces.attach(name, key))).toMatchObject({ path: '/later' });
    expect((await there.workspace(name).diff()).files).toEqual([]);
  });
}

for (const point of ['after-hidden-sandbox-made', 'after-cache-checkpoint', 'after-store-creating']) {
  test(`a server killed at "${point}" of a create with a workspace: a repeat makes one sandbox that has it`, async () => {
    const { name } = await prepare();
    const options = {
      workspaces: [{ workspace: name, path: '/new' }],
      idempotencyKey: randomUUID(),
      name: `n-${point}`,
    };
    await platform.restartServer(`${point}=crash`);
    await interrupted(platform.server, impatient(platform).sandboxes.create(options));
    await platform.startServer();
    const sandbox = await untilAnswered(() => platform.client.sandboxes.create(options));
    expect((await sandbox.exec(['cat', '/new/a.txt'])).stdout).toBe('two\n');
    expect(await sandbox.workspaces.list()).toMatchObject([{ path: '/new', isCurrent: true }]);
    await eventually(async () => {
      const report = await platform.client.reconcile({ dryRun: true });
      expect(report.actions).toEqual([]);
    });
  });
}
