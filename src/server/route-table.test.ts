import { expect, test } from 'vitest';
import { RouteTable } from './route-table.ts';

function tableOf(...routes: readonly string[]) {
  const table = new RouteTable<string>();
  for (const route of routes) {
    const [method = '', path = ''] = route.split(' ');
    table.add({ method, path }, route);
  }
  return table;
}

test('a path finds its methods and parameters; a literal goes before a parameter', () => {
  const table = tableOf('GET /v1/a', 'POST /v1/a', 'GET /v1/a/:id', 'GET /v1/a/mine', 'POST /v1/a/:id/stop');

  expect([...table.find('/v1/a')!.methods.keys()]).toEqual(['GET', 'POST']);
  expect(table.find('/v1/a/x%20y')).toMatchObject({ params: { id: 'x%20y' } });
  expect(table.find('/v1/a/mine')?.methods.get('GET')).toBe('GET /v1/a/mine');
  expect(table.find('/v1/a/7/stop')?.params).toEqual({ id: '7' });
});

test('an empty segment, a missing one and one too many are not found', () => {
  const table = tableOf('GET /v1/a/:id', 'GET /v1/a/:id/b');
  for (const path of ['/', '', '/v1', '/v1/a', '/v1/a/', '/v1/a//b', '/v1/a/x/', '/v1/a/x/b/c', '*', 'v1/a/x/y']) {
    expect(table.find(path), path).toBeUndefined();
  }
});

test('a route bound twice, or a parameter with two names, is a bug', () => {
  expect(() => tableOf('GET /a', 'GET /a')).toThrow('bound twice');
  expect(() => tableOf('GET /a/:id', 'GET /a/:name/b')).toThrow(':name');
});

test('nearby names what looks most like the path asked for', () => {
  const table = tableOf('GET /v1/sandboxes', 'POST /v1/sandboxes/:id/stop', 'GET /v1/keys', 'POST /v1/teams');
  expect(table.nearby({ method: 'GET', path: '/v1/sandbox' })[0]).toBe('GET /v1/sandboxes');
  expect(table.nearby({ method: 'POST', path: '/v1/sandboxes/sbx1/stpo' })[0]).toBe('POST /v1/sandboxes/:id/stop');
  expect(table.nearby({ method: 'GET', path: `/${'x'.repeat(10_000)}` })).toHaveLength(3);
});
