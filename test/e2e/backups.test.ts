/** Backups through HTTP and SDK: directories of sandboxes as archives that the server keeps. */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect } from 'vitest';
import { Atoll, type Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const patient = { timeout: 20_000, interval: 100 };

let platform: Platform;
let sandbox: Sandbox;
beforeAll(async () => {
  platform = await Platform.start({ settings: { retentionIntervalMs: 300 } });
  sandbox = await platform.client.sandboxes.create();
  await sandbox.exec(
    [
      'mkdir -p /data/deep/er/est /data/empty "/data/ünï côdé"',
      'echo one > /data/deep/er/est/file',
      'printf "a\\0b" > "/data/ünï côdé/日本.bin"',
      'ln -s deep/er/est/file /data/link',
      `long=$(printf 'n%.0s' $(seq 200)); mkdir -p /data/$long/$long; echo long > /data/$long/$long/$long`,
      'chmod 750 /data/deep/er/est/file',
    ].join('; '),
  );
});
afterAll(() => platform.close());

/** What a tree is, as text: types, modes, names, links and contents. */
async function treeOf(of: Sandbox, path: string): Promise<string> {
  const listing = await of.exec(
    `cd ${path} && find . -printf '%y %m %P %l\\n' | sort && find . -type f -exec sha256sum {} + | sort`,
  );
  expect(listing.stderr).toBe('');
  return listing.stdout;
}
const archives = () => readdir(join(platform.dataDirectory, 'server', 'backups'));

test('E126: nested, empty, long and unicode names, modes and links come back, in another sandbox at another path', async () => {
  const backup = await sandbox.backups.create('/data', { name: 'all' });
  expect(backup).toMatchObject({ sandboxId: sandbox.id, path: '/data', name: 'all', expiresAt: null });
  expect((await platform.client.backups.list({ sandboxId: sandbox.id })).items).toEqual([backup]);
  await using other = await platform.client.sandboxes.create();
  await other.backups.restore(backup.id, '/somewhere/else');
  expect(await treeOf(other, '/somewhere/else')).toBe(await treeOf(sandbox, '/data'));
  await other.backups.restore(backup.id, '/somewhere/else');

  const directory = await mkdtemp(join(tmpdir(), 'atoll-backup-'));
  try {
    const bytes = await buffer(await platform.client.backups.download(backup.id));
    expect(bytes.byteLength).toBe(backup.sizeBytes);
    await writeFile(join(directory, 'all.tar.gz'), bytes);
    const { stdout } = await promisify(execFile)('tar', ['-tzf', join(directory, 'all.tar.gz')]);
    expect(stdout).toContain('deep/er/est/file\n');
  } finally {
    await rm(directory, { recursive: true });
  }
  await platform.client.backups.delete(backup.id);
  expect(await archives()).toEqual([]);
});

test('E126: what .gitignore names is left out, as git reads it', async () => {
  await sandbox.exec(
    [
      'mkdir -p /repo/node_modules/x /repo/src/build /repo/src/keep /repo/.git /repo/logs/deep',
      'cd /repo; printf "node_modules/\\n*.log\\n!keep.log\\n/top\\nlogs/**/x\\n# no\\n" > .gitignore; printf "build\\n!*.txt\\n" > src/.gitignore',
      'touch node_modules/x/file a.log keep.log top src/top src/build/out src/keep/b.log src/c.txt .git/HEAD logs/deep/x logs/y',
    ].join('; '),
  );
  const { id } = await sandbox.backups.create('/repo', { gitignore: true });
  await sandbox.backups.restore(id, '/restored');
  const { stdout } = await sandbox.exec('cd /restored && find . -type f -printf "%P\\n" | sort');
  expect(stdout.trim().split('\n')).toEqual(
    ['.gitignore', 'keep.log', 'logs/y', 'src/.gitignore', 'src/c.txt', 'src/top'].sort(),
  );
  const git = await sandbox.exec(
    'cd /repo && rm -rf .git && git init -q . && git ls-files --others --exclude-standard | sort',
  );
  if (git.exitCode === 0) expect(stdout).toBe(git.stdout);
  await platform.client.backups.delete(id);
});

test('E126: expired, unknown and foreign names are refused, and what is expired is gone', async () => {
  const brief = await sandbox.backups.create('/data/deep', { expiresInMs: 1_000 });
  await expect.poll(archives, patient).toEqual([]);
  const missing = { code: 'backup_not_found' };
  await expect(platform.client.backups.get(brief.id)).rejects.toMatchObject(missing);
  await expect(sandbox.backups.restore(brief.id, '/x')).rejects.toMatchObject(missing);
  await expect(platform.client.backups.download(`bkp${'z'.repeat(20)}`)).rejects.toMatchObject(missing);
  const invalid = { code: 'invalid_request' };
  await expect(platform.client.backups.get('../../key')).rejects.toMatchObject({ code: expect.any(String) as string });
  await expect(platform.client.backups.get('bkp%2e%2e%2fkey')).rejects.toMatchObject(invalid);
  const team = await platform.client.teams.create({ name: 'others' });
  const key = await platform.client.keys.create({ name: 'theirs', teamId: team.id, scopes: ['sandboxes:read'] });
  const kept = await sandbox.backups.create('/data/deep');
  const theirs = new Atoll({ url: platform.server.url, apiKey: key.key });
  await expect(theirs.backups.get(kept.id)).rejects.toMatchObject(missing);
  await platform.client.backups.delete(kept.id);
});

test('E126: a path that leads out stays in the sandbox, and a failure leaves nothing', async () => {
  await sandbox.exec('echo inside > /etc/only-inside');
  const around = await sandbox.backups.create('/data/../../../../etc');
  await sandbox.backups.restore(around.id, '/copy/../around');
  expect((await sandbox.exec('cat /around/only-inside')).stdout).toBe('inside\n');
  await platform.client.backups.delete(around.id);
  await expect(sandbox.backups.create('/nowhere')).rejects.toMatchObject({ code: 'file_not_found' });
  await sandbox.pause();
  await expect(sandbox.backups.create('/data')).rejects.toMatchObject({ code: 'sandbox_paused' });
  await sandbox.resume();
  expect(await archives()).toEqual([]);
  expect((await platform.client.backups.list()).items).toEqual([]);
});

test('E126: many at once are whole', async () => {
  const made = await Promise.all(Array.from({ length: 6 }, () => sandbox.backups.create('/data')));
  expect(new Set(made.map(({ id }) => id)).size).toBe(6);
  await Promise.all(made.map(({ id }, index) => sandbox.backups.restore(id, `/many/${index}`)));
  const original = await treeOf(sandbox, '/data');
  for (const index of made.keys()) expect(await treeOf(sandbox, `/many/${index}`)).toBe(original);
  for (const { id } of made) await platform.client.backups.delete(id);
});
