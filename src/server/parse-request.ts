/** From what stands on the wire to what a route declares. Computes once per route what does not depend on the request. */
import type { IncomingHttpHeaders } from 'node:http';
import { z } from 'zod';
import { type AnyRoute, type Conditions, conditionHeaders } from '../protocol/index.ts';
import { type Issue, invalidRequest, parsePart } from './invalid-request.ts';

const idempotencyKeyMaxLength = 255;

export class RequestParser {
  readonly #route: AnyRoute;
  /** Query fields that may be given several times. */
  readonly #lists: ReadonlySet<string>;
  readonly #takesQuery: boolean;

  constructor(route: AnyRoute) {
    this.#route = route;
    const shape = route.query instanceof z.ZodObject ? (route.query.shape as Record<string, z.ZodType>) : {};
    this.#takesQuery = Object.keys(shape).length > 0;
    this.#lists = new Set(Object.keys(shape).filter((name) => isList(shape[name]!)));
  }

  params(found: Readonly<Record<string, string>>): Readonly<Record<string, unknown>> {
    const decoded: Record<string, string> = {};
    for (const name in found) decoded[name] = decodeSegment(name, found[name]!);
    return parsePart(this.#route.params, 'path', decoded) as Readonly<Record<string, unknown>>;
  }

  query(search: string): unknown {
    if (search === '' && !this.#takesQuery) return {};
    const values: Record<string, string | string[]> = {};
    for (const [name, value] of new URLSearchParams(search)) this.#addQueryValue(values, name, value);
    return parsePart(this.#route.query, 'query', values);
  }

  body(value: unknown): unknown {
    return parsePart(this.#route.body, 'body', value);
  }

  #addQueryValue(values: Record<string, string | string[]>, name: string, value: string): void {
    const issue = (message: string): Issue => ({ in: 'query', path: name.slice(0, 100), message });
    if (name === '__proto__') throw invalidRequest([issue('There is no such field.')]);
    if (value.includes('\0')) throw invalidRequest([issue('A NUL byte is not allowed.')]);
    const earlier = values[name];
    if (this.#lists.has(name)) {
      if (Array.isArray(earlier)) earlier.push(value);
      else values[name] = [value];
    } else {
      if (earlier !== undefined) throw invalidRequest([issue('It is given more than once.')]);
      values[name] = value;
    }
  }
}

function isList(schema: z.ZodType): boolean {
  const inner =
    schema instanceof z.ZodOptional || schema instanceof z.ZodDefault ? (schema.unwrap() as z.ZodType) : schema;
  return inner instanceof z.ZodArray;
}

function decodeSegment(name: string, segment: string): string {
  let text: string;
  try {
    text = decodeURIComponent(segment);
  } catch {
    throw invalidRequest([{ in: 'path', path: name, message: 'It is not percent-encoded UTF-8.' }]);
  }
  if (text.includes('\0')) throw invalidRequest([{ in: 'path', path: name, message: 'A NUL byte is not allowed.' }]);
  return text;
}

const noConditions: Conditions = {};

/** The life that is meant, for what changes nothing. */
export function parseGeneration(headers: IncomingHttpHeaders): Conditions {
  const generation = headers['atoll-generation'];
  return generation === undefined ? noConditions : { generation: parseCount('generation', String(generation)) };
}

export function parseConditions(headers: IncomingHttpHeaders, route?: Pick<AnyRoute, 'ifMatch'>): Conditions {
  const idempotencyKey = headers['idempotency-key'];
  const leaseToken = headers['atoll-lease-token'];
  const generation = headers['atoll-generation'];
  const expectedVersion = route?.ifMatch === 'etag' ? undefined : headers['if-match'];
  if (
    idempotencyKey === undefined &&
    leaseToken === undefined &&
    generation === undefined &&
    expectedVersion === undefined
  ) {
    return noConditions;
  }
  return {
    ...(idempotencyKey !== undefined && { idempotencyKey: parseIdempotencyKey(String(idempotencyKey)) }),
    ...(leaseToken !== undefined && { leaseToken: parseCount('leaseToken', String(leaseToken)) }),
    ...(generation !== undefined && { generation: parseCount('generation', String(generation)) }),
    ...(expectedVersion !== undefined && { expectedVersion: parseVersion(expectedVersion) }),
  };
}

function parseIdempotencyKey(text: string): string {
  if (text.length > 0 && text.length <= idempotencyKeyMaxLength && /^[\x20-\x7e]+$/.test(text)) return text;
  throw invalidHeader('idempotencyKey', `It has 1 to ${idempotencyKeyMaxLength} printable ASCII characters.`);
}

function parseVersion(text: string): number {
  return parseCount('expectedVersion', /^"\d+"$/.test(text) ? text.slice(1, -1) : text);
}

function parseCount(condition: keyof Conditions, text: string): number {
  const value = Number(text);
  if (/^\d{1,16}$/.test(text) && Number.isSafeInteger(value)) return value;
  const example = condition === 'expectedVersion' ? ', as it stands in the ETag: "7"' : ', such as 7';
  throw invalidHeader(condition, `It is a whole number${example}.`);
}

function invalidHeader(condition: keyof Conditions, message: string) {
  return invalidRequest([{ in: 'header', path: conditionHeaders[condition], message }]);
}
