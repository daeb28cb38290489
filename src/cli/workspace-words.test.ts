import { expect, test } from 'vitest';
import { collectWorkspace, parseAuthor, parseTrailer } from './workspace-words.ts';

test('a workspace is a name, with a path, a version, or both', () => {
  expect(collectWorkspace('site')).toEqual([{ workspace: 'site' }]);
  expect(collectWorkspace('site:/src')).toEqual([{ workspace: 'site', path: '/src' }]);
  expect(collectWorkspace('site@3')).toEqual([{ workspace: 'site', version: 3 }]);
  expect(collectWorkspace('site:/a@b/c@12', collectWorkspace('x'))).toEqual([
    { workspace: 'x' },
    { workspace: 'site', path: '/a@b/c', version: 12 },
  ]);
  for (const bad of ['', ':/src', 'site:src', 'site@', 'a b']) expect(() => collectWorkspace(bad), bad).toThrow();
});

test('an author has a name and an address, a trailer a name and a value', () => {
  expect(parseAuthor('Ada L. <ada@example.com>')).toEqual({ name: 'Ada L.', email: 'ada@example.com' });
  for (const bad of ['Ada', '<a@b>', 'Ada <>']) expect(() => parseAuthor(bad), bad).toThrow();
  expect(parseTrailer('Reviewed-by=G=H', parseTrailer('A=1'))).toEqual([
    { name: 'A', value: '1' },
    { name: 'Reviewed-by', value: 'G=H' },
  ]);
  for (const bad of ['', '=x', 'x=']) expect(() => parseTrailer(bad), bad).toThrow();
});
