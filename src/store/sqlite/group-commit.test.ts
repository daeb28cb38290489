import { copyFile, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Durability } from '../store.ts';
import { Connection } from './connection.ts';
import { GroupCommit } from './group-commit.ts';

/** What `PRAGMA synchronous` answers: a commit waits for the disk, or does not. */
const levels = { synced: 2, written: 1 };

let directory: string;
let database: DatabaseSync;
/** Of each commit: its level, and what it holds. */
let commits: { readonly level: number; readonly values: readonly string[] }[];
let writes: GroupCommit;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-commits-'));
  database = new DatabaseSync(join(directory, 'a.db'));
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE a (value TEXT)');
  commits = [];
  let seen = 0;
  writes = new GroupCommit({
    connection: new Connection(database),
    faults: {
      hit: async (point) => {
        if (point !== 'store-before-commit') return;
        const values = database.prepare('SELECT value FROM a ORDER BY rowid').all().slice(seen);
        seen += values.length;
        const level = Number(database.prepare('PRAGMA synchronous').get()?.['synchronous']);
        commits.push({ level, values: values.map(({ value }) => String(value)) });
      },
    },
  });
});
afterEach(async () => {
  database.close();
  await rm(directory, { recursive: true });
});

const write = (value: string, durability: Durability) =>
  writes.run(async (scope) => scope.run('INSERT INTO a VALUES (?)', value), durability);

test('a commit is synced unless all of it needs to be written only, and the next one is as it is asked for', async () => {
  await write('a', 'written');
  await Promise.all([write('b', 'written'), write('c', 'synced'), write('d', 'written')]);
  await write('e', 'written');
  await write('f', 'synced');
  expect(commits).toEqual([
    { level: levels.written, values: ['a'] },
    { level: levels.synced, values: ['b', 'c', 'd'] },
    { level: levels.written, values: ['e'] },
    { level: levels.synced, values: ['f'] },
  ]);
});

test('what is left of a log that was cut is a beginning of what was committed', async () => {
  const path = join(directory, 'a.db');
  const sizes: number[] = [];
  for (const value of ['a', 'b', 'c', 'd']) {
    await write(value, value === 'c' ? 'synced' : 'written');
    sizes.push((await stat(`${path}-wal`)).size);
  }
  expect(new Set(sizes).size).toBe(4);
  for (const [index, size] of sizes.entries()) {
    const copy = join(directory, `copy-${index}.db`);
    await copyFile(path, copy);
    // Torn in the next commit: of that nothing counts.
    await writeFile(`${copy}-wal`, (await readFile(`${path}-wal`)).subarray(0, size + 100));
    using opened = new DatabaseSync(copy);
    expect(opened.prepare('SELECT count(*) AS count FROM a').get()).toEqual({ count: index + 1 });
  }
});

test('a written commit that fails leaves the next one synced', async () => {
  const failing = writes.run(async (scope) => scope.run('INSERT INTO missing VALUES (1)'), 'written');
  await expect(failing).rejects.toThrow();
  await write('a', 'synced');
  expect(commits.at(-1)).toEqual({ level: levels.synced, values: ['a'] });
});
