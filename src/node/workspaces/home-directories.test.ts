/** What a node finds in the homes of its workspaces when it starts: its own work that was cut off, and what a git that was killed left. */
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openLocalWorkspaces } from '../../../test/support/fake-workspaces.ts';
import { tarOf } from '../../../test/support/workspace-content.ts';
import { testAtMs, testAuthor } from '../../../test/support/workspace-rig.ts';
import { newId } from '../../protocol/index.ts';

async function* tar(): AsyncGenerator<Uint8Array, void> {
  yield tarOf({ 'a.txt': 'a' });
}

test('locks, half packs, stagings and what was being made or removed go; content, holds and other files stay', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-homes-'));
  const first = await openLocalWorkspaces({ directory });
  const workspaceId = newId('workspace');
  await first.workspaces.create({ workspaceId });
  const source = { kind: 'archive' as const };
  const order = { workspaceId, source, message: 'm', author: testAuthor, atMs: testAtMs };
  const { commit } = await first.workspaces.importBytes(order, tar());
  await first.workspaces.hold({ workspaceId, name: 'version/1', object: commit });
  const root = join(directory, 'workspaces');
  const repository = join(root, workspaceId, 'objects.git');
  const config = await readFile(join(repository, 'config'), 'utf8');
  const packs = await readdir(join(repository, 'objects/pack'));
  // As a kill leaves them, without closing the first.
  for (const path of ['packed-refs.lock', 'refs/heads/x.lock', 'objects/pack/tmp_pack_1', 'objects/pack/pack-1.pack']) {
    await writeFile(join(repository, path), 'half');
  }
  for (const path of [join(root, workspaceId, 'staging/s1'), join(root, 'making/m1'), join(root, 'trash/t1')]) {
    await mkdir(path);
  }
  await writeFile(join(repository, 'config'), '[core]\n\thooksPath = /tmp\n');
  await writeFile(join(repository, 'info/attributes'), '* filter=evil\n');

  const second = await openLocalWorkspaces({ directory });
  try {
    expect(await second.workspaces.list()).toEqual([workspaceId]);
    expect(await readdir(join(repository, 'objects/pack'))).toEqual(packs);
    const names = await readdir(repository, { recursive: true });
    expect(names.filter((name) => name.endsWith('.lock'))).toEqual([]);
    for (const empty of [join(root, workspaceId, 'staging'), join(root, 'making'), join(root, 'trash')]) {
      expect(await readdir(empty), empty).toEqual([]);
    }
    expect(await readFile(join(repository, 'config'), 'utf8')).toBe(config);
    expect(await readFile(join(repository, 'info/attributes'), 'utf8')).toContain('!filter');
    expect(await second.workspaces.getCommit({ workspaceId, commit })).toMatchObject({ message: 'm\n' });
    expect(await second.workspaces.holds({ workspaceId })).toEqual([{ name: 'version/1', object: commit }]);
  } finally {
    await second.close();
    await rm(directory, { recursive: true, force: true });
  }
});

test('names of holds and messages of commits have their limits', async () => {
  const local = await openLocalWorkspaces();
  try {
    const { workspaces } = local;
    const workspaceId = newId('workspace');
    await workspaces.create({ workspaceId });
    const source = { kind: 'archive' as const };
    const made = await workspaces.importBytes(
      { workspaceId, source, message: 'm', author: testAuthor, atMs: testAtMs },
      tar(),
    );
    for (const name of ['', 'x'.repeat(246), 'ü'.repeat(60)]) {
      const hold = workspaces.hold({ workspaceId, name, object: made.commit });
      await expect(hold, name).rejects.toMatchObject({ code: 'invalid_request' });
    }
    await workspaces.hold({ workspaceId, name: 'x'.repeat(245), object: made.commit });
    const order = { workspaceId, tree: made.tree, parents: [], author: testAuthor, atMs: testAtMs, trailers: [] };
    const long = workspaces.commitTree({ ...order, message: 'x'.repeat(2_000_000) });
    await expect(long).rejects.toMatchObject({ code: 'payload_too_large' });
    expect((await workspaces.holds({ workspaceId })).map(({ name }) => name)).toEqual(['x'.repeat(245)]);
  } finally {
    await local.close();
  }
});
