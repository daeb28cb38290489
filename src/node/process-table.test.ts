import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FakeFeed, runEntry } from '../../test/support/fake-feed.ts';
import { journalRecord, segmentName } from '../../test/support/journal-records.ts';
import { silentLogger } from '../base/index.ts';
import type { InitClient } from '../execution/index.ts';
import { newId } from '../protocol/index.ts';
import {
  journalsDirectory,
  type ProcessRecord,
  processesDirectory,
  processRecordFiles,
  type RunId,
  writeProcessRecord,
} from './process-record.ts';
import { ProcessTable, retention } from './process-table.ts';
import { startRecorded } from './start-recorded.ts';

const nowMs = 10 * retention.endedMs;
const clock = { nowMs: () => nowMs, bootMs: () => 1_000, bootId: 'boot' };
let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'atoll-table-'));
  await mkdir(processesDirectory(directory));
  await mkdir(journalsDirectory(directory));
});
afterEach(() => rm(directory, { recursive: true }));

/** Without a client, on a sandbox whose life is over: everything is known from its files. */
const open = (client?: InitClient) =>
  ProcessTable.open({
    directory,
    generation: 2,
    client,
    clock,
    log: silentLogger,
    removeTree: (path) => rm(path, { recursive: true, force: true }),
  });

const ended = { exitCode: 0, signal: null, timedOut: false, killed: false, outOfMemory: false, sandboxEnded: false };

function record(sequence: number, more: Partial<ProcessRecord> = {}): ProcessRecord {
  return {
    ...{ format: 1, processId: newId('process'), generation: 2, sequence, name: null, pid: 7, command: 'true' },
    ...{ cwd: '/', user: null, startedAtMs: 1, bootedAtMs: nowMs - 1_000, autoCleanup: false, stdinOpen: false },
    ...{ stdinOffset: 0, killAtBootMs: null, exit: { ...ended, endedAtMs: nowMs }, treeEndedAtMs: nowMs },
    ...{ output: { first: 0, end: 0 }, sessionId: null },
    ...more,
  };
}

async function keep(...records: readonly ProcessRecord[]): Promise<void> {
  const files = processRecordFiles(directory);
  for (const one of records) writeProcessRecord(files, one, { isNew: true });
}

async function writeJournalOf(processId: RunId, ...records: readonly Buffer[]): Promise<void> {
  await mkdir(join(journalsDirectory(directory), processId));
  await writeFile(join(journalsDirectory(directory), processId, segmentName(0)), Buffer.concat(records));
}

test('E96: of ended processes the newest are kept, up to a number', async () => {
  const records = Array.from({ length: retention.ended + 10 }, (_, i) =>
    record(i, { treeEndedAtMs: nowMs - 1_000 + i }),
  );
  await keep(...records);
  const table = await open();
  const kept = table.inOrder().map((entry) => entry.record.sequence);
  expect(kept).toEqual(
    records
      .map(({ sequence }) => sequence)
      .slice(10)
      .reverse(),
  );
  expect(await readdir(processesDirectory(directory))).toHaveLength(retention.ended);
});

test('E96: what ended too long ago goes, and so does what is beyond the bytes that are kept', async () => {
  const old = record(1, { treeEndedAtMs: nowMs - retention.endedMs - 1 });
  const big = [2, 3, 4].map((sequence) =>
    record(sequence, { treeEndedAtMs: nowMs - 10 + sequence, output: { first: 0, end: retention.endedBytes / 2 } }),
  );
  await keep(old, ...big);
  expect((await open()).inOrder().map((entry) => entry.record.sequence)).toEqual([4, 3]);
});

test('records and journals of an earlier life, journals without a record, and records that cannot be read are removed', async () => {
  const earlier = record(1, { generation: 1 });
  await keep(earlier, record(2));
  await writeJournalOf(earlier.processId, journalRecord(1, 'x'));
  await writeJournalOf(newId('process'), journalRecord(1, 'x'));
  await writeFile(join(processesDirectory(directory), `${newId('process')}.json`), '{"format":1');
  expect((await open()).inOrder().map((entry) => entry.record.sequence)).toEqual([2]);
  expect(await readdir(journalsDirectory(directory))).toEqual([]);
  expect(await readdir(processesDirectory(directory))).toHaveLength(1);
});

test('the journal tells how a process ended; where it does not, no code is made up', async () => {
  const unended = { exit: null, treeEndedAtMs: null, output: null };
  const [told, halfTold, untold, unstarted] = [1, 2, 3, 4].map((n) =>
    record(n, { ...unended, pid: n === 4 ? null : 7 }),
  );
  await keep(told!, halfTold!, untold!, unstarted!);
  const exited = journalRecord(3, Buffer.from([0, 5, 0, 0, 0]), 900);
  await writeJournalOf(told!.processId, journalRecord(1, 'out', 800), exited, journalRecord(4, '', 950));
  await writeJournalOf(halfTold!.processId, exited, journalRecord(1, 'child', 960));
  await writeJournalOf(untold!.processId, journalRecord(1, 'out', 800));
  const table = await open();
  const at = (bootMs: number) => nowMs - 1_000 + bootMs;
  expect(table.get(told!.processId).record).toMatchObject({
    exit: { ...ended, exitCode: 5, endedAtMs: at(900) },
    treeEndedAtMs: at(950),
    output: { first: 0, end: 47 },
  });
  expect(table.get(halfTold!.processId).record).toMatchObject({ exit: { exitCode: 5 }, treeEndedAtMs: nowMs });
  expect(table.get(untold!.processId).record).toMatchObject({
    exit: { exitCode: null, signal: null, killed: true, sandboxEnded: true },
  });
  expect(table.find(unstarted!.processId)).toBeUndefined();
  expect(await open().then((again) => again.get(untold!.processId).record)).toEqual(
    table.get(untold!.processId).record,
  );
});

test('a name is taken before anything is written, and writes of one record do not meet', async () => {
  const table = await open();
  const { sequence: _, ...start } = record(0, { name: 'web', exit: null, treeEndedAtMs: null, output: null });
  const other = { ...start, processId: newId('process') };
  const adds = await Promise.allSettled([table.add(start), table.add(other)]);
  expect(adds.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
  const entry = table.get('web');
  await Promise.all(Array.from({ length: 50 }, () => table.save(entry)));
  await table.remove(entry);
  await table.save(entry);
  expect(await readdir(processesDirectory(directory))).toEqual([]);
});

test('when the connection to init is opened again, what is being started is not removed; what was never started is', async () => {
  const feed = new FakeFeed();
  const table = await open(feed.client);
  const add = (name: string) => {
    const { sequence: _, ...start } = record(0, { name, pid: null, exit: null, treeEndedAtMs: null, output: null });
    return table.add(start);
  };
  const entry = await add('starting');
  // Behind the other one, so that both were looked at when it is gone.
  (await add('never')).isStarting = false;
  feed.lose();
  await expect.poll(() => table.find('never'), { timeout: 10_000 }).toBeUndefined();
  expect(table.find('starting')).toBe(entry);
  await startRecorded(table, entry, async () => ({ pid: 9 }));
  expect(entry).toMatchObject({ isStarting: false, record: { pid: 9 } });
  await table.close();
});

test('a life is over when the ends that were heard of are kept: its directory may go then', async () => {
  const feed = new FakeFeed();
  const removal = Promise.withResolvers<void>();
  const reached = Promise.withResolvers<void>();
  const errors: unknown[] = [];
  const removeTree = async () => {
    reached.resolve();
    await removal.promise;
  };
  const options = {
    directory,
    generation: 2,
    clock,
    log: { ...silentLogger, error: (...said: unknown[]) => errors.push(said) },
  };
  // Nothing that has ended is kept, so that the end is under way until its journal is removed.
  const none = { ended: 0, endedMs: retention.endedMs, endedBytes: 0 };
  const running = record(1, { exit: null, treeEndedAtMs: null, output: null });
  await keep(running);
  feed.runs = [runEntry(running.processId)];
  const table = await ProcessTable.open({ ...options, client: feed.client, removeTree, retention: none });
  const idle = await ProcessTable.open({ ...options, client: new FakeFeed().client, removeTree });
  feed.tell(runEntry(running.processId, { state: 'ended', endedBootMs: 900 }));
  await reached.promise;
  let isOver = false;
  const ending = table.endLife().then(() => {
    isOver = true;
  });
  // One that waits for nothing is over by then.
  await idle.endLife();
  expect(isOver).toBe(false);
  removal.resolve();
  await ending;
  expect(errors).toEqual([]);
});

test('a full disk is insufficient_storage, and the process is not there', async () => {
  const table = await open();
  const { sequence: _, ...start } = record(0, {
    name: 'web',
    pid: null,
    exit: null,
    treeEndedAtMs: null,
    output: null,
  });
  await symlink('/dev/full', join(processesDirectory(directory), `.${start.processId}.json.tmp`));
  await expect(table.add(start)).rejects.toMatchObject({ code: 'insufficient_storage' });
  expect(table.find('web')).toBeUndefined();
});
