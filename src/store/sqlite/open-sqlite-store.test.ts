import { createHash } from 'node:crypto';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sandboxRecord } from '../../../test/support/records.ts';
import { newId } from '../../protocol/index.ts';
import { latestVersion } from './migrate.ts';
import { migrations } from './migrations/index.ts';
import { openSqliteStore } from './open-sqlite-store.ts';
import { StoreOpenError } from './store-open-error.ts';

let directory: string;
let path: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-open-'));
  path = join(directory, 'atoll.db');
});
afterEach(() => rm(directory, { recursive: true }));

/** Names, contents and modes of everything in the directory, but for the shared memory, where readers leave marks. */
async function fingerprint(): Promise<string[]> {
  const describe = async (name: string) => {
    const hash = createHash('sha256').update(await readFile(join(directory, name)));
    return `${name} ${(await stat(join(directory, name))).mode} ${hash.digest('hex')}`;
  };
  const names = (await readdir(directory)).filter((name) => !name.endsWith('-shm'));
  return Promise.all(names.toSorted().map(describe));
}

async function expectRefusal(code: string, message: RegExp): Promise<void> {
  const before = await fingerprint();
  const refusal = await openSqliteStore({ path, busyTimeoutMs: 0 }).catch((error: unknown) => error);
  expect(refusal).toBeInstanceOf(StoreOpenError);
  expect(refusal).toMatchObject({ code, message: expect.stringMatching(message) });
  expect(await fingerprint()).toEqual(before);
}

async function makeDatabase(sql = ''): Promise<void> {
  await (await openSqliteStore({ path })).close();
  using database = new DatabaseSync(path);
  database.exec(sql);
}

test('versions grow by one from 1', () => {
  expect(migrations.map((migration) => migration.version)).toEqual(migrations.map((_, index) => index + 1));
});

test('a new database and its companions are for their owner only, and closing leaves one file', async () => {
  const store = await openSqliteStore({ path });
  await store.transact(({ teams }) => teams.insert({ id: newId('team'), name: 't', createdAtMs: 1, diskBytes: null }));
  expect(await readdir(directory)).toEqual(['atoll.db', 'atoll.db-shm', 'atoll.db-wal']);
  for (const name of await readdir(directory)) expect((await stat(join(directory, name))).mode & 0o777).toBe(0o600);
  await store.close();
  expect(await readdir(directory)).toEqual(['atoll.db']);
});

test('a database that others could read is made private', async () => {
  await makeDatabase();
  await chmod(path, 0o644);
  await (await openSqliteStore({ path })).close();
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

test('a new database is in WAL mode and of the latest version', async () => {
  await makeDatabase();
  using database = new DatabaseSync(path);
  expect(database.prepare('PRAGMA journal_mode').get()).toMatchObject({ journal_mode: 'wal' });
  expect(database.prepare('PRAGMA user_version').get()).toMatchObject({ user_version: latestVersion });
});

test('sandboxes of a database from before networks were chosen have none', async () => {
  const record = sandboxRecord();
  const store = await openSqliteStore({ path });
  await store.transact(({ sandboxes }) => sandboxes.insert(record));
  await store.close();
  using database = new DatabaseSync(path);
  database.exec(`DROP TABLE plan_members; DROP TABLE plans; DROP TABLE plan_commits; DROP TABLE plan_checkpoints;
    DROP TABLE attach_cache; DROP TABLE attachments; DROP TABLE workspace_versions; DROP TABLE workspaces;
    DROP TABLE exposures; DROP TABLE checkpoints; DROP TABLE backups;
    ALTER TABLE teams DROP COLUMN disk_bytes; ALTER TABLE sandboxes DROP COLUMN on_expiry;
    ALTER TABLE sandboxes DROP COLUMN auto_resume; ALTER TABLE sandboxes DROP COLUMN keep_checkpoints;
    ALTER TABLE sandboxes DROP COLUMN network; PRAGMA user_version = 1`);
  const migrated = await openSqliteStore({ path });
  expect(await migrated.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual({
    ...record,
    network: { mode: 'none' },
  });
  await migrated.close();
});

test('a database of a newer version is refused and left as it is', async () => {
  await makeDatabase(`PRAGMA user_version = ${latestVersion + 1}`);
  await expectRefusal(
    'newer_version',
    new RegExp(
      `written by a newer program.*version ${latestVersion + 1}.*up to ${latestVersion}.*Nothing was changed.*backup`,
    ),
  );
});

test('a newer version that is only in the WAL is seen', async () => {
  await makeDatabase();
  using running = new DatabaseSync(path);
  running.exec(`PRAGMA user_version = ${latestVersion + 1}`);
  await expectRefusal('newer_version', /written by a newer program/);
});

test.each([
  ['a text', 'hello'],
  ['a long text', 'hello '.repeat(1000)],
])('%s is no database', async (_, content) => {
  await writeFile(path, content);
  await expectRefusal('not_a_database', /is not a SQLite database.*Nothing was changed/);
});

test("another program's database is refused", async () => {
  {
    using other = new DatabaseSync(path);
    other.exec('CREATE TABLE theirs (id TEXT)');
  }
  await expectRefusal('not_a_database', /belongs to another program/);
});

test('an empty file, and what a crash of the first opening leaves, become a database', async () => {
  await writeFile(path, '');
  await (await openSqliteStore({ path })).close();
  await rm(path);
  {
    using blank = new DatabaseSync(path);
    blank.exec('PRAGMA journal_mode = WAL');
  }
  await (await openSqliteStore({ path })).close();
});

test('a database that somebody is changing is locked, and opens when they are done', async () => {
  const other = new DatabaseSync(path);
  other.exec('PRAGMA journal_mode = WAL; BEGIN IMMEDIATE');
  const opening = openSqliteStore({ path, busyTimeoutMs: 0 });
  await expect(opening).rejects.toMatchObject({ code: 'locked', message: expect.stringMatching(/stop the other/) });
  other.exec('ROLLBACK');
  other.close();
  await (await openSqliteStore({ path })).close();
});

test('a damaged database is refused by name', async () => {
  await makeDatabase();
  const content = await readFile(path);
  await writeFile(path, content.fill(0xff, 100, 4096));
  await expect(openSqliteStore({ path })).rejects.toMatchObject({ code: 'unreadable', message: /damaged/ });
});

test('a directory, and a file in no directory, are unreadable', async () => {
  await expect(openSqliteStore({ path: directory })).rejects.toMatchObject({ code: 'unreadable' });
  const nowhere = openSqliteStore({ path: join(directory, 'no', 'such.db') });
  await expect(nowhere).rejects.toMatchObject({ code: 'unreadable', message: /Check that its directory exists/ });
});
