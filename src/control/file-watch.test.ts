import { expect, test } from 'vitest';
import type { FileEvent } from '../protocol/index.ts';
import { filterEvents, isWanted } from './file-watch.ts';

const created = (path: string): FileEvent => ({ kind: 'created', path });

test.each([
  [{ include: ['*.ts'] }, 'a.ts', true],
  [{ include: ['*.ts'] }, 'deep/er/a.ts', true],
  [{ include: ['*.ts'] }, 'a.js', false],
  [{ include: ['src/*.ts'] }, 'src/a.ts', true],
  [{ include: ['src/*.ts'] }, 'lib/src/a.ts', false],
  [{ include: ['src'] }, 'src/deep/a', true],
  [{ exclude: ['node_modules'] }, 'x/node_modules/y/z', false],
  [{ include: ['*.ts'], exclude: ['dist'] }, 'dist/a.ts', false],
  [{}, 'anything', true],
])('%j on %s: %s', (filter, path, expected) => {
  expect(isWanted(created(path), { include: undefined, exclude: undefined, ...filter })).toBe(expected);
});

test('a move is wanted when either end is; what is about the watch always passes', () => {
  const filter = { include: ['*.ts'], exclude: undefined };
  expect(isWanted({ kind: 'moved', path: 'a.js', from: 'a.ts' }, filter)).toBe(true);
  expect(isWanted({ kind: 'overflow' }, filter)).toBe(true);
  expect(isWanted({ kind: 'armed' }, filter)).toBe(true);
});

test('paths are shown absolute, that of the watched one included', async () => {
  async function* events(): AsyncGenerator<FileEvent, void> {
    yield created('a/b');
    yield { kind: 'modified', path: '' };
    yield { kind: 'moved', path: 'c', from: 'd' };
  }
  const seen: unknown[] = [];
  for await (const event of filterEvents(events(), { path: './w', include: undefined, exclude: undefined }))
    seen.push(event);
  expect(seen).toEqual([
    { kind: 'created', path: '/workspace/w/a/b' },
    { kind: 'modified', path: '/workspace/w' },
    { kind: 'moved', path: '/workspace/w/c', from: '/workspace/w/d' },
  ]);
});
