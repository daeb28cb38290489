/** Attaching and detaching workspaces: what is refused, what races, what goes away meanwhile. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlRig } from '../../../test/support/control-rig.ts';
import { giveFiles } from '../../../test/support/local-sandboxes.ts';
import { workspaceCalls } from '../../../test/support/workspace-calls.ts';
import { type Conditions, newId, type SandboxId } from '../../protocol/index.ts';

let rig: ControlRig;
beforeEach(async () => {
  rig = await ControlRig.open();
  await giveFiles(rig.node);
});
afterEach(() => rig.close());
const { asked, make, createWith, attach, read, write } = workspaceCalls(() => rig);

const detach = (id: SandboxId, conditions: Conditions = {}, removeFiles: 'true' | 'false' = 'false') =>
  rig.control.attachments.detach(asked(id, 'site', conditions), { removeFiles });
const attached = async (id: SandboxId) =>
  (await rig.control.attachments.list(rig.caller, id)).items.map(({ path }) => path);

test('of two attaches at once whose places lie in each other, the second is refused', async () => {
  await make('site');
  await make('inner');
  const { id } = await rig.create();
  const gate = rig.faults.hold('after-checkout-placed');
  const first = attach(id, { workspace: 'site', path: '/s' });
  await gate.reached;
  const second = attach(id, { workspace: 'inner', path: '/s/in' });
  second.catch(() => {});
  // One that did not wait for the other would have looked by now, and found nothing in its way.
  await rig.quiet();
  gate.open();
  expect(await first).toMatchObject({ path: '/s' });
  await expect(second).rejects.toMatchObject({ code: 'invalid_request', details: { other: '/s' } });
  expect(await attached(id)).toEqual(['/s']);
});

test('a workspace is attached to a sandbox once, by a name or an id, on the node where it is at home', async () => {
  const { id: workspaceId, head } = await make();
  const { id } = await rig.create();
  await attach(id, { workspace: 'site', path: '/s' });
  await expect(attach(id, { workspace: workspaceId, path: '/other' })).rejects.toMatchObject({
    ...{ code: 'workspace_in_use', details: { path: '/s' } },
  });
  const other = await rig.create();
  const nodeId = newId('node');
  await rig.store.transact(async ({ workspaces }) => {
    const record = (await workspaces.find(workspaceId))!;
    const version = (await workspaces.findVersion({ workspaceId, number: head!.number }))!;
    const away = { ...record, id: newId('workspace'), name: 'away', nodeId };
    await workspaces.insert(away);
    await workspaces.insertVersion({ ...version, workspaceId: away.id });
  });
  await expect(attach(other.id, { workspace: 'away' })).rejects.toMatchObject({
    ...{ code: 'invalid_request', details: { workspaceNode: nodeId } },
  });
  expect(await attached(other.id)).toEqual([]);
});

test('a path at which something is refuses a workspace; an empty directory does not', async () => {
  await make();
  const { id } = await rig.create();
  await write(id, '/s/there', 'x');
  await expect(attach(id, { workspace: 'site', path: '/s' })).rejects.toMatchObject({ code: 'file_exists' });
  expect(await read(id, '/s/there')).toBe('x');
  await rig.node.checkout(id, '/empty');
  expect(await attach(id, { workspace: 'site', path: '/empty/' })).toMatchObject({ path: '/empty' });
});

test('a sandbox or workspace that goes while its files are written is not recorded as attached', async () => {
  const { id: workspaceId } = await make();
  const [one, two] = [await rig.create(), await rig.create()];
  const gate = rig.faults.hold('after-checkout-placed');
  const first = attach(one.id, { workspace: 'site', path: '/s' });
  await gate.reached;
  const second = attach(two.id, { workspace: 'site', path: '/s' });
  await rig.delete(one.id);
  gate.open();
  await expect(first).rejects.toMatchObject({ code: 'sandbox_not_found' });
  await second;
  const again = rig.faults.hold('after-checkout-placed');
  const three = await rig.create();
  const third = attach(three.id, { workspace: 'site', path: '/s' });
  await again.reached;
  await expect(rig.control.workspaces.delete(rig.caller, 'site', {})).rejects.toMatchObject({
    ...{ code: 'workspace_in_use', details: { workspaceId, sandboxes: [{ sandboxId: two.id, path: '/s' }] } },
  });
  await detach(two.id);
  await rig.control.workspaces.delete(rig.caller, 'site', {});
  again.open();
  await expect(third).rejects.toMatchObject({ code: 'workspace_not_found' });
  expect(await rig.store.read(({ workspaces }) => workspaces.attachmentsTo(workspaceId))).toEqual([]);
});

test('a detached workspace leaves its files, or takes them along when that is asked for', async () => {
  await make();
  const [one, two] = [await createWith(), await createWith()];
  await detach(one.id);
  expect(await attached(one.id)).toEqual([]);
  expect(await read(one.id, '/s/docs/b.md')).toBe('b\n');
  await expect(detach(one.id)).rejects.toMatchObject({ code: 'workspace_not_found' });
  await detach(two.id, {}, 'true');
  await expect(read(two.id, '/s/docs/b.md')).rejects.toThrow('ENOENT');
  expect((await rig.events('workspace.detached')).map(({ data }) => data['path'])).toEqual(['/s', '/s']);
});

for (const point of ['after-journal-operation', 'before-store-answer']) {
  test(`a detach that dies at "${point}" is done once, and its key is answered`, async () => {
    await make();
    const { id } = await createWith();
    const key = { idempotencyKey: 'k' };
    const gate = rig.faults.hold(point);
    detach(id, key).catch(() => {});
    await gate.reached;
    await rig.restart();
    gate.open();
    await detach(id, key);
    await detach(id, key);
    expect(await attached(id)).toEqual([]);
    expect(await rig.events('workspace.detached')).toHaveLength(1);
  });
}
