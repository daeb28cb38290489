/** What plans do on workspaces in real git stores, with sandboxes whose files are directories here. With real sandboxes: test/e2e/plans.test.ts. */
import { access } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { signal, workspaceCalls } from '../../../test/support/workspace-calls.ts';
import { type BodyInputOf, routes, type SandboxId } from '../../protocol/index.ts';

let rig: ControlRig;
let boxes: SandboxId[];
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
  await make('site', { 'a.txt': 'base\n' });
  await make('docs', { 'b.txt': 'base\n' });
  const one = await createWith({ workspaces: [{ workspace: 'site', path: '/s' }] });
  const two = await createWith({ workspaces: [{ workspace: 'docs', path: '/d' }] });
  boxes = [one.id, two.id];
  await rig.control.plans.create(rig.caller, {}, { name: 'p', members: boxes });
});
afterEach(() => rig.close());
const { make, bring, createWith, head, write, read, holdsOf } = workspaceCalls(() => rig);

function commit(body: BodyInputOf<typeof routes.commitPlan> = {}) {
  const parsed = routes.commitPlan.body.parse(body);
  return rig.control.plans.commits.commit(rig.caller, 'p', {}, parsed, signal);
}

function rollBack() {
  return rig.control.plans.rollbacks.rollBack(rig.caller, 'p', {}, { waitMs: 0 });
}

test('C27: checks see the merged result of every target at its path, in order, and the first that fails decides', async () => {
  await write(boxes[0]!, '/s/mine', '1');
  await write(boxes[1]!, '/d/mine', '2');
  await bring('docs', { 'b.txt': 'base\n', 'late.txt': 'l' });
  const seen: unknown[] = [];
  rig.node.execute = async ({ sandboxId, command, cwd, env }) => {
    const files = [
      await read(sandboxId, '/s/mine'),
      await read(sandboxId, '/d/mine'),
      await read(sandboxId, '/d/late.txt'),
    ];
    seen.push({ command, cwd, files, isNamed: env['ATOLL_PLAN_COMMIT']?.startsWith('cmt') ?? false });
    const isBad = String(command).includes('bad');
    return isBad ? { exitCode: 3, stdout: Buffer.from('out'), stderr: Buffer.from('err') } : { exitCode: 0 };
  };
  const checks = [{ command: 'good' }, { command: 'bad', cwd: '/d' }, { command: 'never' }];
  const failed = await commit({ checks });
  expect(failed).toMatchObject({
    ...{ state: 'aborted', error: { code: 'plan_check_failed', details: { exitCode: 3, timedOut: false } } },
    checks: [
      { command: 'good', exitCode: 0 },
      { command: 'bad', exitCode: 3, output: 'outerr' },
    ],
  });
  const files = ['1', '2', 'l'];
  expect(seen).toEqual([
    { command: 'good', cwd: expect.stringMatching(/^\/[sd]$/), files, isNamed: true },
    { command: 'bad', cwd: '/d', files, isNamed: true },
  ]);
  rig.node.execute = async () => ({ exitCode: 137, timedOut: true });
  expect(await commit({ checks: [{ command: 'slow' }] })).toMatchObject({
    ...{ state: 'aborted', checks: [{ exitCode: null, timedOut: true }] },
  });
  expect([await head('site'), await head('docs')], 'nothing is published').toEqual([1, 2]);
  rig.node.execute = async () => ({ exitCode: 0 });
  expect(await commit({ checks: [{ command: 'good' }] })).toMatchObject({ state: 'committed' });
  expect([await head('site'), await head('docs')]).toEqual([2, 3]);
  expect(rig.node.sandboxes.size, 'whoever checked is gone').toBe(2);
});

test('checks need a place of its own for every target', async () => {
  await rig.control.plans.remove(rig.caller, 'p', {}, boxes[1]!);
  const inside = await createWith({ workspaces: [{ workspace: 'docs', path: '/s/docs' }] });
  await rig.control.plans.add(rig.caller, 'p', {}, inside.id);
  await write(boxes[0]!, '/s/mine', '1');
  expect(await commit({ checks: [{ command: 'true' }] })).toMatchObject({
    ...{ state: 'aborted', error: { code: 'invalid_request', details: { path: '/s' } } },
  });
  expect(await head('site')).toBe(1);
});

test('C46: a rollback puts checkouts back to their bases: what was added goes, what was changed or removed is back', async () => {
  await write(boxes[0]!, '/s/a.txt', 'changed');
  await write(boxes[0]!, '/s/deep/added', 'x');
  await write(boxes[1]!, '/d/mine', '2');
  expect((await rollBack()).state).toEqual({ kind: 'rolledBack' });
  expect(await read(boxes[0]!, '/s/a.txt')).toBe('base\n');
  for (const [box, path] of [
    [boxes[0]!, '/s/deep'],
    [boxes[1]!, '/d/mine'],
  ] as const) {
    await expect(access(join(await rig.node.checkout(box, '/'), path)), path).rejects.toThrow('ENOENT');
  }
  expect((await rig.events('workspace.dropped')).map(({ data }) => data['path']).sort()).toEqual(['/d', '/s']);
});

test('C60: a revert of a committed plan is a version of every target that takes it back, and keeps what came since', async () => {
  await write(boxes[0]!, '/s/mine', '1');
  await write(boxes[1]!, '/d/b.txt', 'changed\n');
  expect(await commit()).toMatchObject({ state: 'committed' });
  await bring('site', { 'a.txt': 'base\n', mine: '1', 'late.txt': 'l' });
  const reverted = await rig.control.plans.commits.revert(rig.caller, 'p', {}, { waitMs: 0 }, signal);
  expect(reverted).toMatchObject({ kind: 'revert', state: 'committed' });
  const filesOf = async (name: string) => {
    const { items } = await rig.control.workspaces.versions(rig.caller, name, { limit: 1 });
    const { files } = await rig.control.workspaces.diff(rig.caller, name, { from: 1, to: items[0]!.number, limit: 9 });
    return files.map(({ path, kind }) => `${kind} ${path}`);
  };
  expect(await filesOf('site')).toEqual(['added late.txt']);
  expect(await filesOf('docs')).toEqual([]);
  // What was read for the commit is kept for days; the revert itself needs no more than its version.
  const holds = (await holdsOf('docs')).filter((name) => !name.startsWith('plan/'));
  expect(holds).toEqual(['version/1', 'version/3']);
});

test('C19: conflicts of several members name whom each is with: the head, or the member before it', async () => {
  const third = await createWith({ workspaces: [{ workspace: 'site', path: '/s' }] });
  await rig.control.plans.add(rig.caller, 'p', {}, third.id);
  await write(boxes[0]!, '/s/both', 'first');
  await write(third.id, '/s/both', 'third');
  await write(third.id, '/s/a.txt', 'third\n');
  await bring('site', { 'a.txt': 'moved\n' });
  const conflict = await commit();
  expect(conflict.state).toBe('conflict');
  const conflicts = conflict.members.flatMap(({ sandboxId, targets }) =>
    targets.flatMap(({ conflicts }) =>
      conflicts.map(({ path, withSandboxId }) => ({ sandboxId, path, withSandboxId })),
    ),
  );
  expect(conflicts).toEqual([
    { sandboxId: third.id, path: 'a.txt', withSandboxId: null },
    { sandboxId: third.id, path: 'both', withSandboxId: boxes[0] },
  ]);
  expect([await head('site'), await head('docs')]).toEqual([2, 1]);
});
