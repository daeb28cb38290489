/** Lists of sandboxes: filters, order and pages as E2B's clients ask for them. */
import { z } from 'zod';
import { parsePart } from '../invalid-request.ts';
import { E2bError } from './e2b-error.ts';
import { marksOf } from './sandbox-marks.ts';
import { type E2bState, type SandboxSeen, stateOf } from './sandbox-views.ts';

const listQuery = z.strictObject({
  metadata: z.string().optional(),
  state: z.string().optional(),
  startedAfter: z.iso.datetime({ offset: true }).optional(),
  template: z.string().optional(),
  order: z.enum(['asc', 'desc']).default('desc'),
  limit: z.coerce.number().int().min(1).max(100).default(100),
  nextToken: z.string().max(200).optional(),
});

interface Place {
  readonly startedAt: string;
  readonly id: string;
}

export interface ListQuery {
  /** `key=value`; every one must hold. */
  readonly metadata: readonly string[];
  readonly states: ReadonlySet<E2bState>;
  readonly startedAfterMs: number;
  readonly template: string | undefined;
  readonly order: 'asc' | 'desc';
  readonly limit: number;
  readonly after: Place | undefined;
}

export function parseListQuery(search: string): ListQuery {
  const asked = parsePart(listQuery, 'query', Object.fromEntries(new URLSearchParams(search)));
  if (asked.template?.includes(':')) throw new E2bError(400, 'The template of a filter has no tag.');
  return {
    metadata: asked.metadata ? parseMetadataFilter(asked.metadata) : [],
    states: parseStates(asked.state),
    startedAfterMs: asked.startedAfter === undefined ? 0 : Date.parse(asked.startedAfter),
    template: asked.template,
    order: asked.order,
    limit: asked.limit,
    after: asked.nextToken ? parseToken(asked.nextToken, asked.order) : undefined,
  };
}

/** Clients encode keys and values, then the pairs, then the parameter: one layer is gone when it comes here. */
export function parseMetadataFilter(text: string): string[] {
  return decoded(text)
    .split('&')
    .filter((pair) => pair !== '')
    .map((pair) => {
      const parts = pair.split('=');
      if (parts.length !== 2 || parts[0] === '')
        throw new E2bError(400, 'A metadata filter is key=value, joined by "&".');
      return parts.map(decoded).join('=');
    });
}

/** One page of what matches, and the token of the next. */
export function pageOf(
  all: readonly SandboxSeen[],
  query: ListQuery,
): { items: SandboxSeen[]; nextToken: string | undefined; running: number } {
  const matching = all
    .filter((seen) => matches(seen, query))
    .sort((a, b) => compare(placeOf(a), placeOf(b), query.order));
  const { after } = query;
  const rest =
    after === undefined ? matching : matching.filter((seen) => compare(placeOf(seen), after, query.order) > 0);
  const items = rest.slice(0, query.limit);
  const last = items.at(-1);
  return {
    items,
    nextToken: rest.length > items.length && last !== undefined ? writeToken(placeOf(last), query.order) : undefined,
    running: matching.filter((seen) => stateOf(seen) === 'running').length,
  };
}

function matches(seen: SandboxSeen, query: ListQuery): boolean {
  const state = stateOf(seen);
  if (state === undefined || !query.states.has(state)) return false;
  if (Date.parse(seen.createdAt) < query.startedAfterMs) return false;
  return (
    query.template === undefined ||
    query.template === seen.template ||
    query.template === marksOf(seen.metadata)?.template
  );
}

function parseStates(text: string | undefined): ReadonlySet<E2bState> {
  const states = text === undefined || text === '' ? ['running', 'paused'] : text.split(',');
  const unknown = states.find((state) => state !== 'running' && state !== 'paused');
  if (unknown !== undefined) throw new E2bError(400, `"${unknown.slice(0, 50)}" is no state; running and paused are.`);
  return new Set(states as E2bState[]);
}

function placeOf(seen: SandboxSeen): Place {
  return { startedAt: seen.createdAt, id: seen.id };
}

function compare(a: Place, b: Place, order: 'asc' | 'desc'): number {
  const up =
    a.startedAt === b.startedAt ? (a.id < b.id ? -1 : a.id > b.id ? 1 : 0) : a.startedAt < b.startedAt ? -1 : 1;
  return order === 'asc' ? up : -up;
}

function writeToken({ startedAt, id }: Place, order: 'asc' | 'desc'): string {
  return Buffer.from(`${startedAt}__${id}${order === 'asc' ? '__asc' : ''}`).toString('base64url');
}

function parseToken(token: string, order: 'asc' | 'desc'): Place {
  const [startedAt, id, direction = 'desc'] = Buffer.from(token, 'base64url').toString('utf8').split('__');
  if (startedAt === undefined || id === undefined || Number.isNaN(Date.parse(startedAt))) {
    throw new E2bError(400, 'This is no token of a next page.');
  }
  if (direction !== order) throw new E2bError(400, 'The token of the next page is of a list in the other order.');
  return { startedAt, id };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new E2bError(400, 'The metadata filter is not percent-encoded.');
  }
}
