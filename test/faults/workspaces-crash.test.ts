/**
 * A process that changes workspaces is ended with SIGKILL at each durable step. What the next one finds is whole or not there, and the same order
 * gives the same answer as if nothing had happened.
 */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { ScriptedFaults } from '../../src/base/index.ts';
import { newId } from '../../src/protocol/index.ts';
import { programPath } from '../support/program-path.ts';
import { describeWith, requires, testWith } from '../support/requires.ts';
import { openLocalRig, type WorkspacesUnderTest, WorkspaceUser } from '../support/workspace-rig.ts';
import { type WorkerAction, type WorkerScene, workerActions } from '../support/workspace-worker.ts';

const run = promisify(execFile);
const hourMs = 3_600_000;

describeWith(requires.linux, requires.program('git'))('workspaces', () => {
  let scene: WorkerScene;
  let rig: WorkspacesUnderTest;
  let user: WorkspaceUser;
  const faults = new ScriptedFaults();

  beforeEach(async () => {
    const directory = await mkdtemp(join(tmpdir(), 'atoll-workspaces-'));
    const ids = { directory, workspaceId: newId('workspace'), sandboxId: newId('sandbox') };
    await reopen(ids);
    await rig.workspaces.create(user);
    const base = await user.importFiles({ a: '1\n2\n3\n', b: 'b\n' });
    const ours = await user.importFiles({ a: '0\n1\n2\n3\n', b: 'b\n' });
    const theirs = await user.importFiles({ a: '1\n2\n3\n', b: 'changed\n' });
    for (const [index, { commit }] of [base, ours, theirs].entries()) {
      await rig.workspaces.hold({ ...user, name: `version/${index}`, object: commit });
    }
    scene = { ...ids, base: base.commit, ours: ours.commit, theirs: theirs.commit };
    const checkout = await rig.newCheckout();
    await user.attach(checkout, base.commit);
    await checkout.shell('echo changed >> a; echo new > new');
  });
  afterEach(() => rig.close());

  /** As the next start of a node does. */
  async function reopen(ids: Pick<WorkerScene, 'directory' | 'workspaceId' | 'sandboxId'> = scene): Promise<void> {
    rig = await openLocalRig({ ...ids, faults });
    user = new WorkspaceUser(rig.workspaces, ids.workspaceId);
  }

  async function elsewhere(action: WorkerAction, script = '') {
    const program = programPath('test/support/workspace-worker.ts');
    const argument = JSON.stringify({ scene, action, faults: script });
    const child = spawn(process.execPath, [program, argument], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [said, [code, signal]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    return { said, code: code as number | null, signal: signal as string | null };
  }

  const home = (...parts: string[]) => join(scene.directory, 'workspaces', ...parts);
  const repository = () => home(scene.workspaceId, 'objects.git');

  async function expectSound(): Promise<void> {
    expect(await readdir(home('making'))).toEqual([]);
    expect(await readdir(home('trash'))).toEqual([]);
    if (!(await rig.workspaces.list()).includes(scene.workspaceId)) return;
    expect(await readdir(home(scene.workspaceId, 'staging'))).toEqual([]);
    const env = { PATH: process.env['PATH'], GIT_DIR: repository(), GIT_CONFIG_GLOBAL: '/dev/null' };
    const { stdout, stderr } = await run('git', ['fsck', '--strict', '--no-dangling', '--no-progress'], { env });
    expect({ stdout, stderr: stderr.replace('notice: HEAD points to an unborn branch (main)\n', '') }).toMatchObject({
      stdout: '',
    });
    expect((await run('git', ['count-objects', '-v'], { env })).stdout).toContain('garbage: 0');
    for (const commit of [scene.base, scene.ours, scene.theirs]) {
      expect((await user.export(commit, 'archive')).byteLength).toBeGreaterThan(1_000);
    }
  }

  const points: readonly (readonly [action: WorkerAction, points: readonly string[]])[] = [
    ['import', ['workspace-adopt-synced', 'workspace-adopt-moved', 'workspace-adopted']],
    ['collect', ['workspace-collect-listed', 'workspace-adopt-moved', 'workspace-adopted']],
    ['merge', ['workspace-adopt-moved']],
    ['commit', ['workspace-commit-written']],
    ['hold', ['workspace-hold-before-sync']],
    ['tidy', ['workspace-tidy-marked', 'workspace-tidy-packed']],
  ];
  for (const [action, at] of points) {
    for (const point of at) {
      test(`${action}, killed at ${point}: nothing is half, and the same order gives the same answer`, async () => {
        expect(await elsewhere(action, `${point}=crash`)).toEqual({ said: '', code: null, signal: 'SIGKILL' });
        await reopen();
        await expectSound();
        const holds = (await rig.workspaces.holds(user)).map(({ name }) => name);
        expect(holds.filter((name) => name.startsWith('version/'))).toHaveLength(3);
        const again = await workerActions[action](user, rig, scene);
        expect(await workerActions[action](user, rig, scene)).toEqual(again);
        await expectSound();
      });
    }
  }

  for (const [point, isThere] of [
    ['workspace-create-before-name', false],
    ['workspace-create-before-answer', true],
  ] as const) {
    test(`create, killed at ${point}: it is ${isThere ? 'whole' : 'not there'}, and can be ordered again`, async () => {
      const other = { ...scene, workspaceId: newId('workspace') };
      scene = { ...scene, workspaceId: other.workspaceId };
      expect(await elsewhere('create', `${point}=crash`)).toMatchObject({ signal: 'SIGKILL' });
      await reopen();
      expect((await rig.workspaces.list()).includes(other.workspaceId)).toBe(isThere);
      expect(await readdir(home('making'))).toEqual([]);
      await rig.workspaces.create(other);
      expect(await user.importFiles({ a: 'x' })).toMatchObject({ parents: [] });
    });
  }

  test('remove, killed before its files are gone: it is gone, and so are they after the next start', async () => {
    expect(await elsewhere('remove', 'workspace-remove-before-files=crash')).toMatchObject({ signal: 'SIGKILL' });
    expect(await readdir(home('trash'))).toHaveLength(1);
    await reopen();
    expect(await rig.workspaces.list()).toEqual([]);
    await expectSound();
  });

  test('C37: locks that a killed git left are removed at the next start and by the next tidying, and hold nobody up', async () => {
    const locks = () => [
      join(repository(), 'packed-refs.lock'),
      join(repository(), 'refs/holds/version%2f0.lock'),
      join(repository(), 'refs/holds/later.lock'),
    ];
    const leave = () => Promise.all(locks().map((path) => writeFile(path, '')));
    await leave();
    await expect(rig.workspaces.hold({ ...user, name: 'later', object: scene.ours })).rejects.toThrow();
    await reopen();
    await rig.workspaces.hold({ ...user, name: 'later', object: scene.ours });
    await leave();
    await rig.workspaces.tidy({ ...user, olderThanMs: hourMs });
    await rig.workspaces.release({ ...user, names: ['later', 'version/0'] });
    expect((await rig.workspaces.holds(user)).map(({ name }) => name)).toEqual(['version/1', 'version/2']);
  });

  /** As if everything had been made two hours ago. */
  async function age(): Promise<void> {
    const then = new Date(Date.now() - 2 * hourMs);
    for (const entry of await readdir(join(repository(), 'objects'), { withFileTypes: true, recursive: true })) {
      if (entry.isFile()) await utimes(join(entry.parentPath, entry.name), then, then);
    }
  }

  describe('C29: beside tidying', () => {
    for (const point of ['workspace-adopt-synced', 'workspace-adopt-moved']) {
      test(`what is collected stays whole when old objects it stands on are tidied away at ${point}`, async () => {
        await rig.workspaces.release({ ...user, names: ['version/0', 'version/1', 'version/2'] });
        await age();
        await reopen(); // What answers named is forgotten with the process that gave them.
        const gate = faults.hold(point);
        const collecting = (async () => await user.collect(await rig.newCheckout(), scene.base))();
        await gate.reached;
        let isTidied = false;
        const tidying = rig.workspaces.tidy({ ...user, olderThanMs: hourMs }).then(() => (isTidied = true));
        // Everything else that does not add objects goes on, and is a turn for the tidying to take if it could.
        for (let turn = 0; turn < 5; turn++) await rig.workspaces.holds(user);
        expect(isTidied).toBe(false);
        gate.open();
        const { tree } = await collecting;
        await tidying;
        const { commit } = await user.commit(tree, []);
        expect(await user.read(commit, 'a')).toBe('1\n2\n3\nchanged\n');
        expect(await user.read(commit, 'b')).toBe('b\n');
      });
    }

    test('C69: what an answer names is kept from then on, also an old object that nothing holds; later it goes', async () => {
      const { tree } = await rig.workspaces.getCommit({ ...user, commit: scene.theirs });
      await rig.workspaces.release({ ...user, names: ['version/2'] });
      await age();
      await reopen();
      // A merge that is nothing but one side names a tree that was there already.
      const { tree: base } = await rig.workspaces.getCommit({ ...user, commit: scene.base });
      expect(await user.merge(base, base, tree)).toMatchObject({ kind: 'merged', tree });
      await rig.workspaces.tidy({ ...user, olderThanMs: hourMs });
      const { commit } = await user.commit(tree, []);
      expect(await user.read(commit, 'b')).toBe('changed\n');
      await reopen();
      await age();
      await rig.workspaces.tidy({ ...user, olderThanMs: hourMs });
      await expect(user.commit(tree, [])).rejects.toMatchObject({ code: 'workspace_not_found' });
    });
  });

  testWith(requires.root)(
    'C26: a full disk is told where objects are written, before anything names them',
    async () => {
      const directory = await mkdtemp(join(tmpdir(), 'atoll-full-'));
      const disk = join(directory, 'disk');
      await mkdir(disk);
      await run('mount', ['-t', 'tmpfs', '-o', 'size=16m,mode=0700', 'tmpfs', disk]);
      try {
        const full = await openLocalRig({ directory: join(disk, 'root') });
        const own = await WorkspaceUser.create(full.workspaces);
        const base = await own.importFiles({ a: 'x\n' });
        const checkout = await full.newCheckout();
        await own.attach(checkout, base.commit);
        await checkout.shell('head -c 9000000 /dev/urandom > large');
        await expect(own.collect(checkout, base.commit)).rejects.toMatchObject({ code: 'insufficient_storage' });
        const items = [{ name: 'large', content: Buffer.alloc(9_000_000, Math.random().toString(36)) }];
        await checkout.shell('head -c 6500000 /dev/urandom > more 2> /dev/null; true');
        await run('bash', ['-c', `cat /dev/zero > ${disk}/filler || true`]);
        await expect(own.importArchive(items)).rejects.toMatchObject({ code: 'insufficient_storage' });
        await expect(full.workspaces.create({ workspaceId: newId('workspace') })).rejects.toMatchObject({
          code: 'insufficient_storage',
        });
        await rm(join(disk, 'filler'));
        await checkout.shell('rm large more; echo small > small');
        const { counts } = await own.collect(checkout, base.commit);
        expect(counts).toEqual({ files: 1, insertions: 1, deletions: 0 });
        expect(await full.workspaces.list()).toEqual([own.workspaceId]);
        await full.close();
      } finally {
        await run('umount', ['-l', disk]);
        await rm(directory, { recursive: true, force: true });
      }
    },
  );
});
