import { expect, test } from 'vitest';
import { nestedRepositories } from './nested-repositories.ts';

test('a directory with a `.git` is another repository, unless the base has files in it at any depth', () => {
  const paths = ['.git', 'a/.git', 'b/.git', 'b/c/.git', 'd/e/.git', 'd.git', 'f/.gitignore'];
  const found = nestedRepositories(paths, ['b/c/deep/file', 'd/other', 'a.txt', 'abc/x']);
  expect([...found].sort()).toEqual(['a', 'd/e']);
  expect(nestedRepositories([], ['a/b']).size).toBe(0);
});

test('a sandbox that makes as many of them as it may does not keep the node busy with comparing', () => {
  const count = 150_000;
  const nested = Array.from({ length: count }, (_, index) => `n${index}/.git`);
  const known = Array.from({ length: count }, (_, index) => `k${index}/file`);
  // Each with each would be more than twenty thousand million comparisons.
  expect(nestedRepositories(nested, known).size).toBe(count);
});
