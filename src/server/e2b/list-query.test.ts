import { expect, test } from 'vitest';
import { testSandboxView } from '../../../test/support/fake-control.ts';
import { pageOf, parseListQuery, parseMetadataFilter } from './list-query.ts';

const at = (second: number, metadata: Record<string, string> = {}) =>
  testSandboxView({
    id: `sbx${String(second).padStart(20, '0')}` as never,
    createdAt: new Date(second * 1000).toISOString(),
    metadata,
  });
const names = (items: readonly { readonly id: string }[]) => items.map(({ id }) => Number(id.slice(3)));

test('a metadata filter is decoded as often as the SDK has encoded it', () => {
  const arrived = new URLSearchParams('metadata=a%252520b%3Dc%252526d%26k%3Dv').get('metadata')!;
  expect(parseMetadataFilter(arrived)).toEqual(['a b=c&d', 'k=v']);
  for (const bad of ['a', '=b', 'a=b=c', '%zz=1']) expect(() => parseMetadataFilter(bad)).toThrow();
});

test('every sandbox is on exactly one page, in either order, also while others come and go', () => {
  const all = [1, 2, 3, 4, 5].map((second) => at(second));
  for (const order of ['asc', 'desc']) {
    const seen: number[] = [];
    let token: string | undefined;
    do {
      const query = parseListQuery(`?order=${order}&limit=2${token === undefined ? '' : `&nextToken=${token}`}`);
      const page = pageOf([...all].reverse(), query);
      seen.push(...names(page.items));
      token = page.nextToken;
      expect(page.running).toBe(5);
    } while (token !== undefined);
    expect(seen).toEqual(order === 'asc' ? [1, 2, 3, 4, 5] : [5, 4, 3, 2, 1]);
  }
});

test('filters by start, state and template all hold', () => {
  const marks = JSON.stringify({ template: 'base', isPublic: true, requestHost: null });
  const all = [at(1), at(2, { 'atoll.e2b.settings': marks }), { ...at(3), state: 'stopped' as const }];
  const list = (query: string) => names(pageOf(all, parseListQuery(query)).items);
  expect(list('')).toEqual([2, 1]);
  expect(list('?state=paused')).toEqual([]);
  expect(list('?startedAfter=1970-01-01T00:00:02Z')).toEqual([2]);
  expect(list('?template=base')).toEqual([2]);
  expect(list('?template=unheard-of')).toEqual([]);
});

test('what makes no sense is refused', () => {
  for (const bad of [
    '?state=dead',
    '?limit=0',
    '?limit=101',
    '?template=a:b',
    '?nextToken=x',
    '?order=up',
    '?unheard=1',
  ]) {
    expect(() => parseListQuery(bad)).toThrow();
  }
  const token = pageOf([at(1), at(2)], parseListQuery('?limit=1')).nextToken;
  expect(() => parseListQuery(`?order=asc&nextToken=${token}`)).toThrow(/other order/);
});
