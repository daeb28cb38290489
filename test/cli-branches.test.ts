/** The commands of checkpoints, pauses, forks and backups: what they ask of the server, print and exit with. */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { openCliRig } from './support/cli-rig.ts';
import { testId } from './support/fake-control.ts';
import { testBackup, testCheckpoint } from './support/fake-control-branches.ts';

const sandboxId = testId('sandbox', 'a');

test('pause, resume and restore print the state; a mode that is none is a usage error', async () => {
  await using rig = await openCliRig();
  expect((await rig.run('pause', sandboxId, '--mode', 'files')).stdout).toBe(`${sandboxId} paused\n`);
  expect(rig.http.control.last('pause').args[3]).toEqual({ mode: 'files' });
  expect((await rig.run('resume', sandboxId, '--expires-in', '5m')).stdout).toBe(`${sandboxId} running\n`);
  expect(rig.http.control.last('resume').args[3]).toEqual({ expiresInMs: 300_000 });
  const restored = await rig.run('restore', sandboxId, testCheckpoint.id);
  expect(restored.stdout).toBe(`${sandboxId} running, generation 2\n`);
  expect(rig.http.control.last('restore').args[3]).toEqual({ checkpoint: testCheckpoint.id });
  expect((await rig.run('pause', sandboxId, '--mode', 'deep')).exitCode).toBe(64);
});

test('fork prints the ids of those that were made, tells of the others beside, and exits so', async () => {
  await using rig = await openCliRig();
  const run = await rig.run('fork', sandboxId, '-n', '2', '-m', 'a=b');
  expect(run.stdout).toBe(`${testId('sandbox', 'forked')}\n`);
  expect(run.stderr).toContain('limit_exceeded: There is no room.');
  expect(run.exitCode).not.toBe(0);
  expect(rig.http.control.last('fork').args[3]).toMatchObject({ count: 2, metadata: { a: 'b' } });
});

test('checkpoints are created, listed, shown and deleted', async () => {
  await using rig = await openCliRig();
  const made = await rig.run('checkpoint', 'create', sandboxId, 'named', '--expires-in', '7d');
  expect(made.stdout).toBe(`${testCheckpoint.id}\n`);
  expect(rig.http.control.last('createCheckpoint').args[3]).toEqual({ name: 'named', expiresInMs: 604_800_000 });
  expect((await rig.run('checkpoint', 'ls', sandboxId)).stdout).toContain(testCheckpoint.id);
  expect(rig.http.control.last('listCheckpoints').args[1]).toMatchObject({ sandboxId });
  expect((await rig.run('checkpoint', 'show', testCheckpoint.id)).stdout).toContain('4 KiB');
  expect(await rig.run('checkpoint', 'rm', testCheckpoint.id)).toMatchObject({ exitCode: 0, stdout: '' });
  expect(rig.http.control.last('deleteCheckpoint').args[1]).toBe(testCheckpoint.id);
});

test('backups are created, listed, restored, downloaded once to a file, and deleted', async () => {
  await using rig = await openCliRig();
  const directory = await mkdtemp(join(tmpdir(), 'atoll-cli-'));
  try {
    const made = await rig.run('backup', 'create', sandboxId, '/data', '--gitignore');
    expect(made.stdout).toBe(`${testBackup.id}\n`);
    expect(rig.http.control.last('createBackup').args[3]).toMatchObject({ path: '/data', gitignore: true });
    expect((await rig.run('backup', 'ls')).stdout).toContain('/workspace');
    expect((await rig.run('backup', 'restore', testBackup.id, sandboxId, '/to')).exitCode).toBe(0);
    expect(rig.http.control.last('restoreBackup').args[3]).toEqual({ path: '/to' });
    const file = join(directory, 'archive.tar.gz');
    expect((await rig.run('backup', 'download', testBackup.id, file)).exitCode).toBe(0);
    expect(await readFile(file, 'utf8')).toBe('tar');
    expect((await rig.run('backup', 'download', testBackup.id, file)).exitCode).not.toBe(0);
    expect((await rig.run('backup', 'rm', testBackup.id)).exitCode).toBe(0);
  } finally {
    await rm(directory, { recursive: true });
  }
});
