/** Plans through HTTP and SDK, on real workspaces in real sandboxes. One server for all of them. */
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { removeSandboxes } from '../support/crashes.ts';
import { headsOf, makeWorkspace, planCase } from '../support/plan-cases.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
beforeAll(async () => {
  platform = await Platform.start({ settings: { retentionIntervalMs: 300, planRecoveryIntervalMs: 300 } });
});
afterEach(() => removeSandboxes(platform));
afterAll(() => platform.close());

test('C18: two sandboxes are committed together: every workspace has its version, with author and trailers', async () => {
  const { client } = platform;
  const made = await planCase(client);
  expect(await client.plans.status(made.plan)).toMatchObject({ files: 4, commits: 2 });
  // Both have their workspace at the same path, so one sandbox cannot check them side by side.
  const sideBySide = await client.plans.commit(made.plan, { checks: [{ command: 'true' }] });
  expect(sideBySide).toMatchObject({ state: 'aborted', error: { code: 'invalid_request' } });
  const author = { name: 'A Person', email: 'a@example.com' };
  const committed = await client.plans.commit(made.plan, { message: 'Both at once', author });
  expect(committed).toMatchObject({ state: 'committed' });
  expect(await headsOf(client, made)).toEqual([2, 2]);
  for (const [index, name] of made.workspaces.entries()) {
    const version = await client.workspaces.version(name, 2);
    expect(version.author).toBe('A Person <a@example.com>');
    expect(version.message).toContain(`Atoll-Sandbox: ${made.sandboxes[index]!.id}`);
    expect(version.message).toContain(`Atoll-Plan: ${committed.planId}`);
    const { files } = await client.workspaces.diff(name, { from: 1 });
    expect(files.map(({ path, kind }) => [path, kind])).toEqual([
      ['file', 'deleted'],
      ['mine', 'added'],
    ]);
  }
  expect(await client.plans.commit(made.plan), 'C73').toEqual(committed);
  expect(await client.plans.status(made.plan)).toMatchObject({ files: 0, commits: 0 });
});

test('C27: C17: checks run on the merged result of all members, and what they say decides', async () => {
  const { client } = platform;
  const workspace = await makeWorkspace(client);
  const sandboxes = [];
  for (const name of ['a', 'b']) {
    const sandbox = await client.sandboxes.create({ workspaces: [{ workspace, path: '/src' }] });
    await sandbox.files.write(`/src/${name}`, name);
    sandboxes.push(sandbox.id);
  }
  const { id: plan } = await client.plans.create(`checked-${workspace}`, sandboxes);
  const failed = await client.plans.commit(plan, { checks: [{ command: 'ls; echo no >&2; exit 3' }] });
  expect(failed).toMatchObject({ state: 'aborted', error: { code: 'plan_check_failed' } });
  expect(failed.checks).toMatchObject([{ exitCode: 3, timedOut: false, output: 'a\nb\nfile\nno\n' }]);
  const late = await client.plans.commit(plan, { checks: [{ command: 'sleep 60', timeoutMs: 200 }] });
  expect(late.checks).toMatchObject([{ exitCode: null, timedOut: true }]);
  expect((await client.workspaces.get(workspace)).head!.number).toBe(1);
  const good = await client.plans.commit(plan, {
    checks: [
      { command: 'cd /src && test -e a && test -e b && git log --oneline | grep -q . && test -n "$ATOLL_PLAN_COMMIT"' },
    ],
  });
  expect(good).toMatchObject({ state: 'committed', checks: [{ exitCode: 0 }] });
  expect(good.members.map(({ state }) => state)).toEqual(['committed', 'committed']);
  expect((await client.sandboxes.list()).items).toHaveLength(2);
});

test('C7: C10: C51: while a plan commits, its members are refused by their node with the plan as holder; a lost lease ends it', async () => {
  const { client } = platform;
  const made = await planCase(client);
  const [first, second] = made.sandboxes;
  await client.plans.remove(made.plan, second!.id);
  // It goes on until its lease is taken away below.
  const committing = client.plans.commit(made.plan, { checks: [{ command: 'sleep infinity' }] });
  const leaseHolder = async () => (await client.plans.get(made.plan)).members[0]!.sandbox!.leaseHolder;
  await expect.poll(leaseHolder, { timeout: 30_000 }).toContain('plan pln');
  await expect(first!.exec(['true'])).rejects.toMatchObject({
    code: 'lease_held',
    details: { holder: expect.stringContaining('plan pln') },
  });
  await expect(first!.delete({ force: true })).rejects.toMatchObject({ code: 'plan_busy' });
  await expect(client.plans.add(made.plan, second!.id)).rejects.toMatchObject({ code: 'plan_busy' });
  const [lease] = await client.leases.list({ resource: first!.id });
  await client.leases.release(lease!.id);
  expect(await committing).toMatchObject({ state: 'aborted', error: { code: 'plan_interrupted' } });
  expect(await headsOf(client, made)).toEqual([1, 1]);
  expect((await first!.exec(['true'])).exitCode).toBe(0);
  expect((await client.plans.commit(made.plan)).state).toBe('committed');
});

test('C19: C20: what overlaps is a conflict of every member that has one; what does not is merged', async () => {
  const { client } = platform;
  const workspace = await makeWorkspace(client, { one: '1\n', two: '2\n', three: '3\n' });
  const boxes = [];
  for (const text of ['a', 'b', 'c']) {
    const sandbox = await client.sandboxes.create({ workspaces: [{ workspace, path: '/src' }] });
    await sandbox.exec(`echo ${text} > /src/one; echo ${text} > /src/${text}`);
    boxes.push(sandbox);
  }
  const { id: plan } = await client.plans.create(
    `clash-${workspace}`,
    boxes.map(({ id }) => id),
  );
  const result = await client.plans.commit(plan);
  expect(result.state).toBe('conflict');
  const found = result.members.map(({ targets }) =>
    targets[0]!.conflicts.map(({ path, withSandboxId }) => [path, withSandboxId]),
  );
  expect(found).toEqual([[], [['one', boxes[0]!.id]], [['one', boxes[0]!.id]]]);
  expect((await client.workspaces.get(workspace)).head!.number).toBe(1);
  for (const box of boxes.slice(1)) await box.exec('echo 1 > /src/one');
  const merged = await client.plans.commit(plan);
  expect(merged).toMatchObject({ state: 'committed', targets: [{ before: { number: 1 }, after: { number: 2 } }] });
});

test('C46: C47: rollback puts back files, modes, links, deletions and empty directories; a second one changes nothing', async () => {
  const { client } = platform;
  const made = await planCase(client);
  const listing = 'cd /src && find . -path ./.git -prune -o -printf "%P %y %m %l\\n" | sort';
  const fresh = await client.sandboxes.create({ workspaces: [{ workspace: made.workspaces[0]!, path: '/src' }] });
  const before = (await fresh.exec(listing)).stdout;
  const [first] = made.sandboxes;
  await first!.exec('cd /src && chmod 700 mine && ln -s mine link && mkdir deep && touch deep/x && chmod 0 deep');
  expect((await client.plans.rollBack(made.plan)).state).toEqual({ kind: 'rolledBack' });
  for (const sandbox of made.sandboxes) expect((await sandbox.exec(listing)).stdout).toBe(before);
  expect((await client.plans.rollBack(made.plan)).state).toEqual({ kind: 'rolledBack' });
});

test('C58: C59: a checkpoint of a plan brings every member back, with what its checkout stood on', async () => {
  const { client } = platform;
  const made = await planCase(client);
  const { id } = await client.plans.checkpoint(made.plan, { name: 'before' });
  for (const sandbox of made.sandboxes) await sandbox.exec('rm -rf /src/mine && echo later > /src/later');
  expect((await client.plans.restore(made.plan, id)).state).toEqual({ kind: 'open' });
  for (const sandbox of made.sandboxes) {
    const again = await client.sandboxes.connect(sandbox.id);
    expect((await again.exec('ls /src')).stdout).toBe('empty\nmine\n');
  }
  expect((await client.plans.commit(made.plan)).state).toBe('committed');
  expect(await headsOf(client, made)).toEqual([2, 2]);
  await client.plans.deleteCheckpoint(made.plan, id);
  expect(await client.plans.checkpoints(made.plan)).toEqual([]);
});

test('C60: C69: a committed plan is reverted as a whole; deleting it leaves versions and sandboxes', async () => {
  const { client } = platform;
  const made = await planCase(client);
  await client.plans.commit(made.plan);
  const result = await client.plans.revert(made.plan);
  expect(result).toMatchObject({ kind: 'revert', state: 'committed' });
  expect(await headsOf(client, made)).toEqual([3, 3]);
  for (const name of made.workspaces) {
    expect((await client.workspaces.diff(name, { from: 1 })).files).toEqual([]);
    expect((await client.workspaces.version(name, 3)).kind).toBe('revert');
  }
  await client.plans.delete(made.plan, { discard: true });
  await expect(client.plans.get(made.plan)).rejects.toMatchObject({ code: 'plan_not_found' });
  expect(await headsOf(client, made)).toEqual([3, 3]);
});
