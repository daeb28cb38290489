import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeClock } from '../../test/support/fake-clock.ts';
import { FakeFeed, runEntry } from '../../test/support/fake-feed.ts';
import { silentLogger } from '../base/index.ts';
import { newId, sessionLimits } from '../protocol/index.ts';
import type { SessionEntry } from './session-entry.ts';
import { readSessionRecords, type SessionRecord, sessionsDirectory, writeSessionRecord } from './session-record.ts';
import { SessionTable } from './session-table.ts';

let directory: string;
const clock = new FakeClock();
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-sessions-'));
  await mkdir(sessionsDirectory(directory));
});
afterEach(() => rm(directory, { recursive: true }));

/** On a sandbox whose life is over: everything is known from its files. */
const open = () => SessionTable.open({ directory, generation: 2, client: undefined, clock, log: silentLogger });

/** On one that runs. */
const openLive = ({ client }: FakeFeed) =>
  SessionTable.open({ directory, generation: 2, client, clock, log: silentLogger });

function record(sequence: number, more: Partial<SessionRecord> = {}): SessionRecord {
  return {
    ...{ format: 1, sessionId: newId('session'), generation: 2, sequence, name: null, pid: 7, shell: 'bash' },
    ...{ user: null, timeoutMs: null, startedAtMs: 1, bootedAtMs: 0, end: null },
    ...more,
  };
}

const ended = (endedAtMs: number) => ({ exitCode: 3, signal: null, reason: 'exited' as const, endedAtMs });

test('what lived when the sandbox ended has ended with it, and says so on disk too', async () => {
  const living = record(1, { name: 'work' });
  await writeSessionRecord(directory, living);
  const table = await open();
  const end = { exitCode: null, signal: null, reason: 'sandbox_ended' };
  expect(table.get('work').record).toMatchObject({ sessionId: living.sessionId, end });
  expect((await readSessionRecords(directory))[0]).toMatchObject({ end });
  expect(table.get('work').terminated()).toMatchObject({
    code: 'session_terminated',
    details: { ...end, name: 'work' },
  });
});

test('E66: an ended session keeps its exit over a restart; by name it is the newest', async () => {
  const older = record(1, { name: 'work', end: ended(5) });
  const newer = record(2, { name: 'work', end: { ...ended(6), exitCode: 4 } });
  await writeSessionRecord(directory, older);
  await writeSessionRecord(directory, newer);
  const table = await open();
  expect(table.get('work').record.end?.exitCode).toBe(4);
  expect(table.get(older.sessionId).record.end?.exitCode).toBe(3);
  expect(() => table.get('other')).toThrow(expect.objectContaining({ code: 'session_not_found' }));
});

test('records of another life and files that are none are removed', async () => {
  await writeSessionRecord(directory, record(1, { generation: 1 }));
  await writeFile(join(sessionsDirectory(directory), 'ses.json'), '{');
  const table = await open();
  expect(table.inOrder()).toEqual([]);
  expect(await readdir(sessionsDirectory(directory))).toEqual([]);
});

test('of ended sessions so many are kept, the newest ends; of living ones so many are taken', async () => {
  const table = await open();
  const add = (sequence: number) => {
    const { sequence: _, ...rest } = record(sequence);
    return table.add(rest, async () => {});
  };
  const entries = [];
  for (let index = 0; index < sessionLimits.live; index++) entries.push(await add(index));
  await expect(add(0)).rejects.toMatchObject({ code: 'limit_exceeded' });
  for (const [index, entry] of entries.entries()) table.end(entry, ended(index));
  for (let index = 0; index < sessionLimits.ended; index++) table.end(await add(index), ended(1_000 + index));
  await table.close();
  const kept = table.inOrder();
  expect(kept).toHaveLength(sessionLimits.ended);
  expect(kept.every(({ record: { end } }) => (end?.endedAtMs ?? 0) >= 1_000)).toBe(true);
  expect(await readdir(sessionsDirectory(directory))).toHaveLength(sessionLimits.ended);
});

test('a command that an earlier node began has its turn until it ends, also if that is while it is listed', async () => {
  const [busy, idle] = [record(1), record(2)];
  await writeSessionRecord(directory, busy);
  await writeSessionRecord(directory, idle);
  const feed = new FakeFeed();
  const command = (run: string, { sessionId }: SessionRecord) =>
    runEntry(run, { kind: 'in session', session: sessionId });
  const [goesOn, ends] = [command('goes-on', busy), command('ends', idle)];
  feed.runs = [runEntry(busy.sessionId), runEntry(idle.sessionId), goesOn, ends];
  feed.onList = () => feed.tell({ ...ends, state: 'ended' });
  const table = await openLive(feed);
  const run = (session: SessionRecord) =>
    table.get(session.sessionId).queue.run({ runId: 'mine', timeoutMs: 0 }, async () => 'ran');
  expect(await run(idle)).toBe('ran');
  await expect(run(busy)).rejects.toMatchObject({ code: 'session_queue_timeout', details: { current: 'goes-on' } });
  feed.tell({ ...goesOn, state: 'ended' });
  await expect.poll(() => table.get(busy.sessionId).queue.current, { timeout: 10_000 }).toBeNull();
  expect(await run(busy)).toBe('ran');
  await table.close();
});

test('a command of this node that ends while init lists it does not hold its session, though no event tells of it', async () => {
  const session = record(1);
  await writeSessionRecord(directory, session);
  const feed = new FakeFeed();
  feed.runs = [runEntry(session.sessionId)];
  const table = await openLive(feed);
  const { queue } = table.get(session.sessionId);
  const listed = Promise.withResolvers<void>();
  const command = queue.run({ runId: 'mine', timeoutMs: 0 }, async () => {
    await listed.promise;
    table.commandOver('mine');
  });
  const settled = Promise.withResolvers<void>();
  feed.runs = [...feed.runs, runEntry('mine', { kind: 'in session', session: session.sessionId })];
  feed.onList = async () => {
    listed.resolve();
    await command;
    settled.resolve();
  };
  feed.lose();
  await settled.promise;
  // The list is answered; what the table makes of it, it makes in the same turn.
  await nextTurn();
  expect(await queue.run({ runId: 'next', timeoutMs: 0 }, async () => 'ran')).toBe('ran');
  await table.close();
});

test('a session that is being made has its first turn from the beginning, and is not missed at init', async () => {
  const table = await openLive(new FakeFeed());
  const { sequence: _, ...made } = record(1, { name: 'work', pid: null });
  const order: string[] = [];
  const adding = table.add(made, async (entry) => {
    order.push('started');
    await table.look(entry);
  });
  const early = table.get('work').queue.run({ runId: 'early', timeoutMs: null }, async () => void order.push('early'));
  await Promise.all([adding, early]);
  expect(order).toEqual(['started', 'early']);
  expect(table.get('work').record).toMatchObject({ sessionId: made.sessionId, end: null });
  await table.close();
});

test('a session whose record cannot be written is not there, and whoever waits for it hears that', async () => {
  const table = await openLive(new FakeFeed());
  await rm(sessionsDirectory(directory), { recursive: true });
  const { sequence: _, ...made } = record(1, { name: 'work', pid: null });
  const starts: string[] = [];
  const adding = table.add(made, async () => void starts.push('started'));
  const early = table.get('work').queue.run({ runId: 'early', timeoutMs: null }, async () => {});
  const [added, waited] = await Promise.allSettled([adding, early]);
  expect(added).toMatchObject({ status: 'rejected', reason: { code: 'ENOENT' } });
  expect(waited).toMatchObject({ status: 'rejected', reason: { code: 'session_not_found' } });
  expect(starts).toEqual([]);
  expect(table.find('work')).toBeUndefined();
  await table.close();
});

test('when the connection to init is opened again, what is started meanwhile is neither removed nor crashed', async () => {
  const gone = record(1, { name: 'gone' });
  await writeSessionRecord(directory, gone);
  const feed = new FakeFeed();
  feed.runs = [runEntry(gone.sessionId)];
  const table = await openLive(feed);
  const opened = Promise.withResolvers<void>();
  const { sequence: _, ...before } = record(2, { name: 'before', pid: null });
  const { sequence: __, ...during } = record(3, { name: 'during', pid: null });
  const gotPid = async (entry: SessionEntry) => {
    entry.record = { ...entry.record, pid: 8 };
  };
  const starting = table.add(before, async (entry) => {
    await opened.promise;
    await gotPid(entry);
  });
  feed.runs = [];
  feed.onList = async () => {
    opened.resolve();
    await Promise.all([starting, table.add(during, gotPid)]);
  };
  feed.lose();
  await expect.poll(() => table.get('gone').record.end, { timeout: 10_000 }).toMatchObject({ reason: 'crashed' });
  expect(table.get('before').record).toMatchObject({ pid: 8, end: null });
  expect(table.get('during').record).toMatchObject({ pid: 8, end: null });
  await table.close();
});

test('the end of a session that was being started while init was out of reach is in the list, and is taken', async () => {
  const feed = new FakeFeed();
  const table = await openLive(feed);
  const { sequence: _, ...made } = record(1, { name: 'work', pid: null });
  const answered = Promise.withResolvers<void>();
  const adding = table.add(made, () => answered.promise);
  feed.runs = [runEntry(made.sessionId, { state: 'ended', waitStatus: 3 << 8 })];
  feed.lose();
  await expect.poll(() => table.get('work').record.end, { timeout: 10_000 }).toMatchObject({ exitCode: 3 });
  answered.resolve();
  await adding;
  await table.close();
});

test('a full disk is insufficient_storage, and the session is not there', async () => {
  const table = await openLive(new FakeFeed());
  const { sequence: _, ...made } = record(1, { name: 'work', pid: null });
  await symlink('/dev/full', join(sessionsDirectory(directory), `.${made.sessionId}.json.tmp`));
  await expect(table.add(made, async () => {})).rejects.toMatchObject({ code: 'insufficient_storage' });
  expect(table.find('work')).toBeUndefined();
  await table.close();
});
