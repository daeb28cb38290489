import { expect, test } from 'vitest';
import { checkoutKey, normaliseRemote, repositoryIdentity, sandboxName, shortHash } from './identity.ts';

const identity = { repository: 'abc:host/a/b', worktree: 'w1', ref: 'branch:main', configPath: 'atoll.yml' };

test.each([
  ['git@GitHub.com:a/b.git', 'github.com/a/b'],
  ['ssh://git@github.com:22/a/b', 'github.com/a/b'],
  ['https://me:secret@github.com/a/b/', 'github.com/a/b'],
  ['https://host:8443/a/b.git', 'host:8443/a/b'],
  ['/srv/git/b.git', 'file/srv/git/b'],
  ['file:///srv/git/b.git', 'file/srv/git/b'],
])('P25: the remote %s is %s', (remote, normalised) => {
  expect(normaliseRemote(remote)).toBe(normalised);
});

test('P0a: each part of the key, and the server, tells checkouts apart', () => {
  const key = checkoutKey(identity, 'http://one');
  const others = [
    checkoutKey(identity, 'http://two'),
    ...Object.keys(identity).map((part) => checkoutKey({ ...identity, [part]: 'other' }, 'http://one')),
  ];
  expect(checkoutKey({ ...identity }, 'http://one')).toBe(key);
  expect(new Set([key, ...others]).size).toBe(6);
  expect(shortHash('ab', 'c')).not.toBe(shortHash('a', 'bc'));
});

test('P41: repositories with neither commit nor remote in common are different; without both it is this directory only', () => {
  const of = (rootCommit: string | undefined, remote: string | undefined) =>
    repositoryIdentity({ rootCommit, remote, worktree: 'w' });
  expect(of('c1', 'git@h:a/b')).toBe('c1:h/a/b');
  expect(of('c1', 'git@h:a/b')).not.toBe(of('c2', 'git@h:a/b'));
  expect(of('c1', 'git@h:a/b')).not.toBe(of('c1', 'git@h:a/fork'));
  expect(of(undefined, undefined)).toBe('local:w');
});

test('P42, P152: the name is the same on every machine, and another for another owner or place', () => {
  const name = sandboxName(identity, { owner: 'me', place: 0 });
  expect(sandboxName({ ...identity, worktree: 'w2' }, { owner: 'me', place: 0 })).toBe(name);
  expect(sandboxName(identity, { owner: 'you', place: 0 })).not.toBe(name);
  expect(sandboxName(identity, { owner: 'me', place: 1 })).not.toBe(name);
  const odd = sandboxName({ ...identity, ref: `branch:feature/ü${'x'.repeat(300)}.` }, { owner: 'me', place: 0 });
  expect(odd).toMatch(/^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$/);
});
