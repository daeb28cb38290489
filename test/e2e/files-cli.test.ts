/** `atoll files` and `atoll cp` against a real server. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;
let here: string;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create({ name: 'box' });
  here = await mkdtemp(join(tmpdir(), 'atoll-cp-'));
});
afterAll(async () => {
  await platform?.close();
  if (here !== undefined) await rm(here, { recursive: true });
});

async function cli(...words: string[]): Promise<string> {
  const answer = await platform.cli(...words);
  expect(answer, answer.stderr).toMatchObject({ code: 0 });
  return answer.stdout;
}

test('each verb of files does what its name says', async () => {
  expect((await platform.cliWith({ stdin: 'from stdin' }, 'files', 'put', 'box', '-', 'dir/f')).code).toBe(0);
  expect(await cli('files', 'cat', 'box', 'dir/f')).toBe('from stdin');
  await cli('files', 'mkdir', '-p', 'box', 'dir/a/b');
  await cli('files', 'cp', 'box', 'dir/f', 'dir/g');
  await cli('files', 'mv', 'box', 'dir/g', 'dir/h');
  const listed = JSON.parse(await cli('--json', 'files', 'ls', 'box', 'dir', '--depth', '2')) as {
    items: { path: string }[];
  };
  expect(listed.items.map(({ path }) => path)).toEqual([
    '/workspace/dir/a',
    '/workspace/dir/a/b',
    '/workspace/dir/f',
    '/workspace/dir/h',
  ]);
  expect(await cli('files', 'ls', 'box', 'dir')).toContain('/workspace/dir/h');
  expect(await cli('files', 'stat', 'box', 'dir/f')).toContain('644');
  expect((await platform.cli('files', 'rm', 'box', 'dir')).code).toBe(73);
  await cli('files', 'rm', '-r', 'box', 'dir');
  expect((await platform.cli('files', 'cat', 'box', 'dir/f')).code).toBe(66);
});

test('cp copies files and directories both ways, as cp does', async () => {
  await mkdir(join(here, 'src/empty'), { recursive: true });
  await writeFile(join(here, 'src/run.sh'), 'echo hi\n', { mode: 0o755 });
  await writeFile(join(here, 'src/ünï'), Buffer.alloc(3_000_000, 7));
  await symlink('run.sh', join(here, 'src/link'));
  await cli('cp', join(here, 'src/run.sh'), 'box:one.sh');
  expect(await sandbox.files.stat('one.sh')).toMatchObject({ mode: 0o755, sizeBytes: 8 });
  await cli('cp', join(here, 'src'), 'box:tree');
  await cli('cp', join(here, 'src'), 'box:tree');
  expect((await sandbox.exec('diff -r --no-dereference tree/src tree/src && ls tree')).stdout).toBe(
    'empty\nlink\nrun.sh\nsrc\nünï\n',
  );
  await cli('cp', 'box:tree/src', join(here, 'back'));
  await promisify(execFile)('diff', ['-r', '--no-dereference', join(here, 'src'), join(here, 'back')]);
  expect((await stat(join(here, 'back/run.sh'))).mode & 0o777).toBe(0o755);
  await mkdir(join(here, 'into'));
  await cli('cp', 'box:one.sh', join(here, 'into'));
  expect(await readFile(join(here, 'into/one.sh'), 'utf8')).toBe('echo hi\n');
  expect((await platform.cli('cp', 'a', 'b')).code).toBe(64);
  expect((await platform.cli('cp', join(here, 'missing'), 'box:x')).code).toBe(66);
});

test('a tar that fails here is what cp tells of, in both directions', async () => {
  const programs = join(here, 'programs');
  await mkdir(programs);
  await mkdir(join(here, 'plain'), { recursive: true });
  await writeFile(join(programs, 'tar'), '#!/bin/sh\nhead -c 300000 /dev/zero\necho "disk on fire" >&2\nexit 2\n', {
    mode: 0o755,
  });
  const env = { PATH: `${programs}:${process.env['PATH']}` };
  await sandbox.exec('mkdir -p many && head -c 3000000 /dev/zero > many/f');
  for (const words of [
    [join(here, 'plain'), 'box:there'],
    ['box:many', join(here, 'many')],
  ]) {
    const answer = await platform.cliWith({ env }, 'cp', ...words);
    expect(answer.stderr).toContain('disk on fire');
    expect(answer.code).toBe(65);
  }
});
