import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { testId } from '../../../test/support/fake-control.ts';
import { PreviewAddresses, parsePreviewDomain } from './preview-addresses.ts';

const id = testId('sandbox', 'a');
const find = (host: string | undefined, url: string, domain = 'localhost') =>
  new PreviewAddresses(parsePreviewDomain(domain)!).find({ headers: { host }, url } as IncomingMessage);

test('a preview is found by host name, whatever its path', () => {
  for (const host of [`80-${id}.localhost`, `80-${id}.localhost:7070`, `80-${id.toUpperCase()}.LOCALHOST`]) {
    expect(find(host, '/v1/sandboxes?x')).toEqual({
      ...{ sandboxId: id, port: 80, mode: 'host', prefix: '', target: '/v1/sandboxes?x' },
    });
  }
  expect(find(`80-${id}.preview.example.com`, '/', 'https://preview.example.com')).toMatchObject({ port: 80 });
});

test('a preview is found by path, with what stands behind it', () => {
  const prefix = `/preview/${id}/80`;
  for (const target of ['', '/', '/a//b?c=/preview/', '?x', '/%2e%2e/']) {
    expect(find('localhost', `${prefix}${target}`)).toEqual({ sandboxId: id, port: 80, mode: 'path', prefix, target });
  }
});

test('what only looks like a preview is none', () => {
  const hosts = [
    undefined,
    '',
    'localhost',
    `80-${id}.example.com`,
    `80-${id}.localhost.`,
    `x.80-${id}.localhost`,
    `80${id}.localhost`,
    `0-${id}.localhost`,
    `080-${id}.localhost`,
    `65536-${id}.localhost`,
    `80-${'nod'.padEnd(23, 'a')}.localhost`,
  ];
  for (const host of hosts) expect(find(host, '/')).toBeUndefined();
  const paths = [
    '/preview',
    '/preview/',
    `/preview/${id}`,
    `/preview/${id}/`,
    `/preview/${id}/80x`,
    `/Preview/${id}/80/`,
  ];
  for (const path of [...paths, `/preview/${id}/65536/`, `/preview/${id}/-1/`, `//preview/${id}/80/`]) {
    expect(find('localhost', path)).toBeUndefined();
  }
});

test('addresses are told as a browser reaches them', () => {
  const urls = (domain: string, host: string) =>
    new PreviewAddresses(parsePreviewDomain(domain)!).urlsOf({ sandboxId: id, port: 80 }, host);
  expect(urls('localhost', '127.0.0.1:7070')).toEqual({
    url: `http://80-${id}.localhost:7070/`,
    pathUrl: `http://127.0.0.1:7070/preview/${id}/80/`,
  });
  expect(urls('localhost', 'atoll.test').url).toBe(`http://80-${id}.localhost/`);
  expect(urls('https://p.example.com', 'api.example.com')).toEqual({
    url: `https://80-${id}.p.example.com/`,
    pathUrl: `https://api.example.com/preview/${id}/80/`,
  });
  expect(urls('https://p.example.com:8443', 'x').url).toBe(`https://80-${id}.p.example.com:8443/`);
});

test('what is no domain is refused', () => {
  for (const text of ['', 'a b', 'ftp://x', 'x/y', '-x', 'x..y', '*.x', 'x:99999', 'http://', 'user@x']) {
    expect(parsePreviewDomain(text)).toBeUndefined();
  }
});
