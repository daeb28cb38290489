import { expect, test } from 'vitest';
import { isLoopback, parseReference } from './reference.ts';

const digest = `sha256:${'a'.repeat(64)}`;
const hub = 'registry-1.docker.io';

test.each([
  ['debian', hub, 'library/debian', 'latest'],
  ['debian:12', hub, 'library/debian', '12'],
  ['docker.io/debian', hub, 'library/debian', 'latest'],
  ['index.docker.io/owner/name:t', hub, 'owner/name', 't'],
  ['owner/name', hub, 'owner/name', 'latest'],
  [`ghcr.io/owner/name@${digest}`, 'ghcr.io', 'owner/name', digest],
  [`ghcr.io/owner/name:tag@${digest}`, 'ghcr.io', 'owner/name', digest],
  ['localhost/name', 'localhost', 'name', 'latest'],
  ['localhost:5000/a/b/c:v1.0_x', 'localhost:5000', 'a/b/c', 'v1.0_x'],
  ['127.0.0.1:5000/name', '127.0.0.1:5000', 'name', 'latest'],
  ['[::1]:5000/name', '[::1]:5000', 'name', 'latest'],
])('%s is resolved as docker does', (text, host, repository, version) => {
  expect(parseReference(text)).toEqual({ host, repository, version });
});

test.each([
  '',
  'Debian',
  'a b',
  'name:',
  'name@sha256:12',
  'name@md5:abc',
  'host.example/../etc',
  'host.example/a//b',
  'host.example/a/./b',
  'user@host.example/name',
  'host.example?x=/name',
  'host.example/name:../x',
  'x'.repeat(600),
])('"%s" is refused', (text) => {
  expect(() => parseReference(text)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
});

test('only what is on loopback counts as such', () => {
  for (const host of ['localhost', 'localhost:5000', '127.0.0.1', '127.9.9.9:80', '[::1]:5000']) {
    expect(isLoopback(host), host).toBe(true);
  }
  for (const host of ['localhost.example.com', '127.0.0.1.example.com', '128.0.0.1', 'example.com:127', '[::2]']) {
    expect(isLoopback(host), host).toBe(false);
  }
});
