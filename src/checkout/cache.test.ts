import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Cache } from './cache.ts';
import type { Session } from './session.ts';

let directory: string;
let warnings: string[];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'atoll-cache-'));
  warnings = [];
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const pathOf = () => join(directory, 'a', 'b', 'cache.db');
const open = (command = 'test') =>
  Cache.open({
    path: pathOf(),
    nowMs: () => 1_000,
    owner: { pid: process.pid, command },
    warn: (text) => warnings.push(text),
  });

const session: Session = {
  key: 'k',
  serverUrl: 'http://one',
  sandboxId: 'sbx1',
  name: 'n',
  identity: { repository: 'r', worktree: 'w', ref: 'branch:main', configPath: '-' },
  root: '/r',
  definition: 'd',
  execCount: 0,
  lastExecMs: null,
  hintShown: false,
  createdMs: 5,
};

test('P6, P7, P9, P13: made on demand with its modes; what is saved is there again', async () => {
  const cache = open();
  expect(cache.sessions()).toEqual([]);
  await cache.withLock({}, async (lock) => lock.save(session));
  expect(open().find('k')).toEqual(session);
  expect(statSync(pathOf()).mode & 0o777).toBe(0o600);
  expect(statSync(join(directory, 'a', 'b')).mode & 0o777).toBe(0o700);
  expect(readdirSync(join(directory, 'a', 'b')).filter((name) => !name.startsWith('cache.db'))).toEqual([]);
  expect(warnings).toEqual([]);
});

test('P46, P136: a second save keeps the counters and what others wrote', async () => {
  const cache = open();
  await cache.withLock({}, async (lock) => lock.save(session));
  await open().withLock({}, async (lock) => {
    lock.save({ ...session, key: 'other' });
    lock.countExec('k', 77);
  });
  await cache.withLock({}, async (lock) => lock.save({ ...session, sandboxId: 'sbx2' }));
  expect(cache.find('k')).toMatchObject({ sandboxId: 'sbx2', execCount: 1, lastExecMs: 77 });
  expect(cache.find('other')).toBeDefined();
});

test('P62: a key that is taken is not overwritten by another that moves', async () => {
  const cache = open();
  await cache.withLock({}, async (lock) => {
    lock.save(session);
    lock.save({ ...session, key: 'taken', sandboxId: 'sbx9' });
    expect(lock.rekey('k', { key: 'taken', ref: 'x', repository: 'r' })).toBe(false);
    expect(lock.rekey('k', { key: 'free', ref: 'x', repository: 'r' })).toBe(true);
  });
  expect(cache.find('taken')?.sandboxId).toBe('sbx9');
  expect(cache.find('free')?.identity.ref).toBe('x');
});

test('P10, P15: a file that is not ours, or newer, is named and not touched', () => {
  open();
  const database = new DatabaseSync(pathOf());
  database.exec('PRAGMA user_version = 99');
  database.close();
  expect(() => open()).toThrow(/newer atoll \(version 99\)/);
  rmSync(join(directory, 'a'), { recursive: true });
  open();
  rmSync(pathOf());
  writeFileSync(pathOf(), 'notes of mine\n');
  expect(() => open()).toThrow(`${pathOf()} is not a cache of atoll`);
  expect(readFileSync(pathOf(), 'utf8')).toBe('notes of mine\n');
});

test('P16: a broken cache is moved aside with a warning', async () => {
  await open().withLock({}, async (lock) => lock.save(session));
  const bytes = readFileSync(pathOf());
  bytes.fill(0xff, 100);
  writeFileSync(pathOf(), bytes);
  rmSync(`${pathOf()}-wal`, { force: true });
  expect(open().sessions()).toEqual([]);
  expect(warnings.join()).toContain('was broken');
  expect(readdirSync(join(directory, 'a', 'b')).some((name) => name.includes('.broken-'))).toBe(true);
});

test('P68, P71, P75: whoever waits learns who holds it; readers wait for nobody; a limit ends the wait', async () => {
  const holder = open('create');
  const release = Promise.withResolvers<void>();
  const taken = Promise.withResolvers<void>();
  const waited: unknown[] = [];
  const holding = holder.withLock({ onWait: (owner) => waited.push(owner) }, async (lock) => {
    lock.save(session);
    taken.resolve();
    await release.promise;
  });
  await taken.promise;
  expect(waited).toEqual([]);
  const other = open('exec');
  expect(other.sessions()).toEqual([]);
  const seen: unknown[] = [];
  const refused = other.withLock({ waitMs: 0, onWait: (owner) => seen.push(owner) }, async () => {});
  await expect(refused).rejects.toMatchObject({
    code: 'checkout_busy',
    details: { command: 'create', pid: process.pid },
  });
  expect(seen).toEqual([{ pid: process.pid, command: 'create', sinceMs: 1_000 }]);
  const next = other.withLock({}, async (lock) => lock.find('k'));
  release.resolve();
  await holding;
  expect(await next).toEqual(session);
});

test('P45: what fails inside gives the lock back', async () => {
  const cache = open();
  await expect(cache.withLock({}, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  await cache.withLock({ waitMs: 0 }, async (lock) => lock.release());
});

const writer = `
import { Cache } from ${JSON.stringify(join(import.meta.dirname, 'cache.ts'))};
const [path, count, hang] = process.argv.slice(2);
const cache = Cache.open({ path, nowMs: Date.now, owner: { pid: process.pid, command: 'writer' }, warn: () => {} });
await Promise.all(Array.from({ length: Number(count) }, () => cache.withLock({}, async (lock) => { lock.countExec('k', 1); })));
if (hang === 'hang') await cache.withLock({}, async (lock) => {
  lock.countExec('k', 2);
  process.stdout.write('held\\n');
  await new Promise((resolve) => setTimeout(resolve, 1e9));
});
`;

test('P14, P73, P76: 100 writers in 4 processes lose no update, and SIGKILL frees the lock and leaves the file whole', async () => {
  const cache = open();
  const { ino } = statSync(pathOf());
  await cache.withLock({}, async (lock) => lock.save(session));
  const program = join(directory, 'writer.ts');
  writeFileSync(program, writer);
  const start = (...words: string[]) =>
    spawn(process.execPath, [program, pathOf(), ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
  const codes = await Promise.all([1, 2, 3, 4].map(async () => (await once(start('25'), 'exit'))[0] as number));
  expect(codes).toEqual([0, 0, 0, 0]);
  expect(cache.find('k')?.execCount).toBe(100);
  const hanging = start('0', 'hang');
  await once(hanging.stdout!, 'data');
  await expect(cache.withLock({ waitMs: 0 }, async () => {})).rejects.toMatchObject({ code: 'checkout_busy' });
  hanging.kill('SIGKILL');
  await once(hanging, 'exit');
  await cache.withLock({}, async () => {});
  expect(cache.find('k')).toMatchObject({ execCount: 100, lastExecMs: 1 });
  // The file that carries the lock is the same one for everybody, always.
  expect(statSync(pathOf()).ino).toBe(ino);
}, 120_000);
