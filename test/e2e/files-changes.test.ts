/** What has changed since an earlier look, through the SDK, HTTP, control, node and a worker in a real sandbox. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect } from 'vitest';
import type { ChangedFile, Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
/** For a hundred thousand files on a machine that is busy. */
const slow = { timeout: 300_000 };

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

async function run(command: string): Promise<string> {
  const { exitCode, stdout, stderr } = await sandbox.exec(command);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: '' });
  return stdout;
}

/** What was made just now is told once more; this is a cursor behind that. */
async function settled(path: string): Promise<string> {
  let { cursor } = await sandbox.files.changes(path);
  await expect
    .poll(
      async () => {
        const next = await sandbox.files.changes(path, { since: cursor });
        cursor = next.cursor;
        return next.changes;
      },
      { timeout: 20_000 },
    )
    .toEqual([]);
  return cursor;
}

const shown = (changes: readonly ChangedFile[]) => changes.map(({ kind, path }) => `${kind} ${path}`);
const told = async (path: string, since: string) => {
  const { changes, cursor } = await sandbox.files.changes(path, { since });
  return { changes: shown(changes), cursor };
};

test('E123: what was created, written, changed in mode or owner, moved and deleted is told, by path and in order', async () => {
  await run(
    'mkdir -p /c/dir/deep /c/out /c/in; cd /c; echo 1 > dir/kept; echo 1 > dir/written; echo 1 > dir/deep/gone; echo 1 > moved; echo 1 > mode; echo 1 > owner; ln -s dir link; mkdir -p /elsewhere/old; echo 1 > /elsewhere/old/file',
  );
  const since = await settled('/c');
  await run(
    'cd /c; echo 2 >> dir/written; rm -r dir/deep; mv moved out/moved; chmod 600 mode; chown 1000 owner; chmod 700 in; ln -sfn out link; mv /elsewhere/old in/old; touch -d 2001-01-01 "new ü"; printf x > "$(printf \'bad\\377\')"',
  );
  const { changes, cursor } = await sandbox.files.changes('/c', { since });
  expect(shown(changes)).toEqual([
    'created /c/bad\ufffd',
    'deleted /c/dir/deep',
    'deleted /c/dir/deep/gone',
    'modified /c/dir/written',
    'modified /c/in',
    // A directory that is moved in, with files that are older than the cursor.
    'created /c/in/old',
    'created /c/in/old/file',
    'modified /c/link',
    'modified /c/mode',
    'deleted /c/moved',
    'created /c/new ü',
    'created /c/out/moved',
    'modified /c/owner',
  ]);
  expect(changes[0]).toMatchObject({ pathBase64: Buffer.from('/c/bad\xff', 'latin1').toString('base64') });
  expect(changes.find(({ path }) => path === '/c/mode')?.entry).toMatchObject({ mode: 0o600, type: 'file' });
  expect(changes.find(({ kind }) => kind === 'deleted')?.entry).toBeNull();
  // The earlier cursor is as good as before, for somebody whose answer was lost.
  expect((await told('/c', since)).changes).toEqual(shown(changes));
  await run('rm -r /c/in/old');
  expect((await told('/c', cursor)).changes).toContain('deleted /c/in/old/file');
});

test('E123: a change in the very tick of the look is never missed', async () => {
  await run('mkdir /tick; echo 0 > /tick/file');
  // In place, many times a tick, so that looks fall between two changes with the same time.
  const write =
    'open(F, "+<", "/tick/file"); for ($i = 1;; $i++) { sysseek F, 0, 0; syswrite F, sprintf("%012d", $i); }';
  const writer = await sandbox.processes.start(['perl', '-e', write]);
  let { cursor } = await sandbox.files.changes('/tick');
  let certain = 0;
  for (let round = 0; round < 100; round++) {
    const behind = await sandbox.files.readText('/tick/file');
    const before = await sandbox.files.readText('/tick/file');
    const { changes, cursor: next } = await told('/tick', cursor);
    cursor = next;
    if (behind === before) continue;
    certain++;
    expect(changes).toContain('modified /tick/file');
  }
  await writer.kill({ signal: 'KILL' });
  expect(certain).toBeGreaterThan(0);
});

test('E123: a change that leaves size and times as they were is told: ctime cannot be set', async () => {
  await run('mkdir /sly; echo one > /sly/file; touch -d 2001-01-01 /sly/file');
  const since = await settled('/sly');
  await run('echo two > /sly/file; touch -d 2001-01-01 /sly/file');
  expect((await told('/sly', since)).changes).toEqual(['modified /sly/file']);
});

test('E123: more changes than a page holds come page by page, each once, also while what was told changes again', async () => {
  await run('mkdir /many; cd /many; for i in $(seq 100 399); do echo $i > $i; done');
  let since = await settled('/many');
  await run('cd /many; rm 1*; for i in 2*; do echo new > $i; done; for i in $(seq 400 499); do echo $i > $i; done');
  const seen: string[] = [];
  for (let hasMore = true; hasMore; ) {
    const page = await sandbox.files.changesPage('/many', { since, limit: 70 });
    expect(page.items.length).toBeLessThanOrEqual(70);
    seen.push(...shown(page.items));
    ({ cursor: since, hasMore } = page);
    await run('echo again > /many/200');
  }
  const numbers = (first: number) => Array.from({ length: 100 }, (_, at) => `/many/${first + at}`);
  const paths = { deleted: numbers(100), modified: numbers(200), created: numbers(400) };
  expect(seen).toEqual(Object.entries(paths).flatMap(([kind, all]) => all.map((path) => `${kind} ${path}`)));
  expect((await told('/many', since)).changes).toContain('modified /many/200');
});

test('E123: a cursor belongs to its tree and user, lives through a restart, and only the newest 16 are kept', async () => {
  await run('mkdir -p /own /other');
  const { cursor } = await sandbox.files.changes('/own');
  const invalid = { code: 'invalid_request' };
  await expect(sandbox.files.changes('/other', { since: cursor })).rejects.toMatchObject(invalid);
  await expect(sandbox.files.changes('/own', { since: cursor, user: 'user' })).rejects.toMatchObject(invalid);
  await expect(sandbox.files.changes('/own', { since: '../record.json' })).rejects.toMatchObject(invalid);
  const gone = { code: 'output_dropped', status: 410 };
  await expect(sandbox.files.changes('/own', { since: `mrk${'a'.repeat(20)}` })).rejects.toMatchObject(gone);
  await expect(sandbox.files.changes('/own/file')).rejects.toMatchObject({ code: 'file_not_found' });

  await platform.restartServer();
  sandbox = await platform.client.sandboxes.connect(sandbox.id);
  await run('touch /own/new');
  expect((await told('/own', cursor)).changes).toEqual(['created /own/new']);

  for (let round = 0; round < 16; round++) await sandbox.files.changes('/own');
  await expect(sandbox.files.changes('/own', { since: cursor })).rejects.toMatchObject(gone);
  expect(await readdir(join(platform.nodeDirectory, 'sandboxes', sandbox.id, 'marks'))).toHaveLength(16);
});

test(
  'E123: a tree of more than 100,000 entries is refused, and nothing of it is kept',
  async () => {
    await run('mkdir /wide; cd /wide; seq 100001 | xargs touch');
    await expect(sandbox.files.changes('/wide')).rejects.toMatchObject({ code: 'limit_exceeded' });
    await run('rm /wide/7');
    const { cursor } = await sandbox.files.changes('/wide');
    await run('rm /wide/8');
    expect((await told('/wide', cursor)).changes).toContain('deleted /wide/8');
  },
  slow,
);

test('the command line gives a cursor to begin with, and then what changed since', async () => {
  await run('mkdir /line; echo 1 > /line/file');
  const since = await settled('/line');
  const first = await platform.cli('files', 'changes', sandbox.id, '/line');
  expect(first).toMatchObject({ code: 0, stdout: expect.stringMatching(/^mrk[a-z0-9]{20}\n$/) });
  await run('rm /line/file; touch /line/new');
  const second = await platform.cli('files', 'changes', sandbox.id, '/line', '--since', since);
  expect(second).toMatchObject({ code: 0, stdout: 'deleted  /line/file\ncreated  /line/new\n' });
  expect(second.stderr).toMatch(/--since mrk/);
  const json = await platform.cli('--json', 'files', 'changes', sandbox.id, '/line', '--since', since);
  expect(JSON.parse(json.stdout)).toMatchObject({ changes: [{ kind: 'deleted' }, { kind: 'created' }] });
});
