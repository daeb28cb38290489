import { expect, test } from 'vitest';
import { isChanged, keyOf, Mark, MarkWriter, pathOf, stateOf } from './tree-mark.ts';
import type { FileStat } from './wire.ts';

const nowMs = 1_800_000_000_000;
const ms = 1_000_000n;
const file: FileStat = {
  ...{ type: 'file', mode: 0o644, uid: 0, gid: 0, size: 3, inode: 7n },
  ...{ modifiedNs: 0n, changedNs: BigInt(nowMs - 5_000) * ms },
};
const stateAt = (stat: Partial<FileStat>, lookedAtMs = nowMs) => stateOf({ ...file, ...stat }, lookedAtMs);

test('what is kept is what was put in, in order, with names of any bytes', async () => {
  const writer = new MarkWriter();
  const paths = [Buffer.from('a'), Buffer.from('a/b'), Buffer.from([0xff, 0x2f, 0xfe]), Buffer.from('ü')];
  for (const path of paths) writer.add({ key: keyOf(path), state: stateAt({}) });
  const mark = await Mark.open(await writer.finish({ about: 'a tree', from: keyOf(Buffer.from('a/b')) }));
  expect(mark.about).toBe('a tree');
  expect(pathOf(mark.from).toString()).toBe('a/b');
  const entries = [...mark.entries()];
  expect(entries.map(({ key }) => pathOf(key))).toEqual(paths);
  for (const { state } of entries) expect(isChanged(state, stateAt({}))).toBe(false);
});

test('keys have the order of a list: a directory, what is in it, then what follows it', () => {
  const paths = ['a', 'a/b', 'a/b/c', 'a/z', 'a b', 'a-', 'a.b', 'b'];
  const sorted = paths.map((path) => keyOf(Buffer.from(path))).sort(Buffer.compare);
  expect(sorted.map((key) => pathOf(key).toString())).toEqual(paths);
});

test.each<[string, Partial<FileStat>, boolean]>([
  ['nothing', {}, false],
  ['a look at it', { modifiedNs: 5n }, false],
  ['its ctime', { changedNs: file.changedNs + 1n }, true],
  ['its inode', { inode: 8n }, true],
  ['its type', { type: 'symlink' }, true],
])('of a file, %s', (_, now, changed) => {
  expect(isChanged(stateAt({}), stateAt(now))).toBe(changed);
});

test.each<[string, Partial<FileStat>, boolean]>([
  ['what is in it', { changedNs: file.changedNs + 1n, size: 4_096 }, false],
  ['its mode', { mode: 0o700 }, true],
  ['its owner', { uid: 1_000 }, true],
  ['its group', { gid: 1_000 }, true],
  ['its inode', { inode: 8n }, true],
])('of a directory, %s', (_, now, changed) => {
  const directory = { type: 'directory', mode: 0o755 } as const;
  expect(isChanged(stateAt(directory), stateAt({ ...directory, ...now }))).toBe(changed);
});

test('a file that changed in the tick of the look, or in what the clock calls the future, counts as changed; an older one does not', () => {
  const changedAt = (agoMs: number) => ({ changedNs: BigInt(nowMs - agoMs) * ms });
  for (const agoMs of [0, 4, 10, 100, -1, -3_600_000]) {
    expect(isChanged(stateAt(changedAt(agoMs)), stateAt(changedAt(agoMs), nowMs + 60_000))).toBe(true);
  }
  expect(isChanged(stateAt(changedAt(101)), stateAt(changedAt(101), nowMs + 60_000))).toBe(false);
  // Told the second time, it is told no more.
  const later = stateAt(changedAt(0), nowMs + 60_000);
  expect(isChanged(later, stateAt(changedAt(0), nowMs + 90_000))).toBe(false);
});
