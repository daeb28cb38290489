import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { plainSettings } from '../../test/support/node-orders.ts';
import { makeSandboxDirectory } from './sandbox-files.ts';
import { SettingsFile, SettingsFiles } from './settings-files.ts';
import { type AppliedSettings, encodeSlot, overlaySlots, parseSlots, slotsFileName } from './settings-slots.ts';
import { SharedPlaces } from './shared-places.ts';

const record: AppliedSettings = { generation: 1, version: 1, settings: plainSettings, deadlineBootMs: 0 };
const applied = (version: number): AppliedSettings => ({ ...record, version });
let root: string;
let directory: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'atoll-settings-'));
  directory = join(root, 'box');
  await makeSandboxDirectory(directory, new SharedPlaces(undefined));
});
afterEach(() => rm(root, { recursive: true }));

const versions = async () => parseSlots(await readFile(join(directory, slotsFileName))).map((slot) => slot?.version);
const current = async () => overlaySlots(record, await readFile(join(directory, slotsFileName)));

async function write(files: SettingsFiles, version: number): Promise<void> {
  const file = (await files.take(directory, await current()))!;
  file.write(encodeSlot(applied(version))!);
  await files.giveBack(directory, file);
}

test('writes take turns between the slots, whatever their versions and whether or not the file was open', async () => {
  for (const reopens of [false, true]) {
    let files = new SettingsFiles();
    let before = (await current()).version;
    for (const step of [1, 2, 1, 4, 2]) {
      await write(files, before + step);
      // What counted before this write is still there: a torn write would have left it.
      if (before > 1) expect(await versions()).toContain(before);
      before += step;
      expect((await current()).version).toBe(before);
      if (reopens) await files.close();
      if (reopens) files = new SettingsFiles();
    }
    await files.close();
  }
});

test('a write that fails leaves what was there, and the next one goes to the same slot', async () => {
  const files = new SettingsFiles();
  await write(files, 2);
  await write(files, 3);
  await files.close();
  const before = await versions();
  const file = (await SettingsFile.open(directory, await current()))!;
  await file.close();
  expect(() => file.write(encodeSlot(applied(4))!)).toThrow();
  expect(await versions()).toEqual(before);
  await write(files, 4);
  expect((await versions()).sort()).toEqual([3, 4]);
});

test('a write that is taken back leaves what counted before it, and the next one takes its place', async () => {
  const files = new SettingsFiles();
  for (const version of [2, 3, 4]) {
    const before = await current();
    const file = (await files.take(directory, before))!;
    file.write(encodeSlot(applied(version))!);
    expect((await current()).version).toBe(version);
    file.takeBack();
    expect(await current()).toEqual(before);
    file.write(encodeSlot(applied(version))!);
    expect((await current()).version).toBe(version);
    await files.giveBack(directory, file);
  }
  expect((await versions()).sort()).toEqual([3, 4]);
  await files.close();
});

test('a directory without slots has none to take', async () => {
  await rm(join(directory, slotsFileName));
  expect(await new SettingsFiles().take(directory, record)).toBeUndefined();
});

test('few files stay open, and none after the close', async () => {
  const files = new SettingsFiles();
  for (let index = 0; index < 100; index++) {
    const file = (await SettingsFile.open(directory, record))!;
    await files.giveBack(`${directory}-${index}`, file);
  }
  expect(files.idle).toBe(64);
  await files.forget(`${directory}-99`);
  expect(files.idle).toBe(63);
  await files.close();
  expect(files.idle).toBe(0);
  const late = (await SettingsFile.open(directory, record))!;
  await files.giveBack(directory, late);
  expect(files.idle).toBe(0);
  expect(() => late.write(encodeSlot(applied(2))!)).toThrow();
});
