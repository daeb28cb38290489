/**
 * A route is declared once. Validation, permission, documentation, the list of errors and the SDK's types come from it.
 * A route that is not a GET is a mutation: it takes the conditions below as headers and goes through one function in control.
 */
import type { z } from 'zod';
import type { ErrorCode } from './errors.ts';

export type Method = 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';

/** What a key may do. `admin` includes every other scope and the whole installation. */
export const scopes = [
  'sandboxes:read',
  'sandboxes:write',
  'sandboxes:exec',
  'leases:write',
  'keys:write',
  'webhooks:write',
  'admin',
] as const;
export type Scope = (typeof scopes)[number];

export interface RouteSpec<
  Params extends z.ZodType,
  Query extends z.ZodType,
  Body extends z.ZodType,
  Result extends z.ZodType,
> {
  /** Also the operation id of the OpenAPI document. */
  readonly name: string;
  readonly method: Method;
  /** With `:name` for parameters. */
  readonly path: string;
  readonly summary: string;
  readonly scope: Scope;
  readonly params: Params;
  readonly query: Query;
  readonly body: Body;
  readonly result: Result;
  /** Of success; 200 unless said otherwise. */
  readonly status: 200 | 201 | 204;
  /** Beyond those that any route may answer with. */
  readonly errors: readonly ErrorCode[];
  readonly bodyLimitBytes: number;
  /** `bytes`: the body is not JSON; the handler gets it as a stream of at most `bodyLimitBytes`. */
  readonly bodyKind: 'json' | 'bytes';
  /** `bytes`: the handler answers with a stream of its own. */
  readonly resultKind: 'json' | 'bytes';
  /** What `If-Match` holds: the version of a record, or the etag of a file. */
  readonly ifMatch: 'version' | 'etag';
  /** Derived: everything but a GET. It takes conditions as headers, and its outcome may be unknown to a client that lost the answer. */
  readonly isMutation: boolean;
}

export type AnyRoute = RouteSpec<z.ZodType, z.ZodType, z.ZodType, z.ZodType>;
export type ParamsOf<Route extends AnyRoute> = z.output<Route['params']>;
export type ParamsInputOf<Route extends AnyRoute> = z.input<Route['params']>;
export type QueryOf<Route extends AnyRoute> = z.output<Route['query']>;
export type QueryInputOf<Route extends AnyRoute> = z.input<Route['query']>;
export type BodyOf<Route extends AnyRoute> = z.output<Route['body']>;
export type BodyInputOf<Route extends AnyRoute> = z.input<Route['body']>;
export type ResultOf<Route extends AnyRoute> = z.output<Route['result']>;

type DefaultedField = 'status' | 'bodyLimitBytes' | 'bodyKind' | 'resultKind' | 'ifMatch';

const defaultBodyLimitBytes = 1024 * 1024;

export function defineRoute<
  Params extends z.ZodType,
  Query extends z.ZodType,
  Body extends z.ZodType,
  Result extends z.ZodType,
>(
  spec: Omit<RouteSpec<Params, Query, Body, Result>, DefaultedField | 'isMutation'> &
    Partial<Pick<RouteSpec<Params, Query, Body, Result>, DefaultedField>>,
): RouteSpec<Params, Query, Body, Result> {
  return {
    ...spec,
    status: spec.status ?? 200,
    bodyLimitBytes: spec.bodyLimitBytes ?? defaultBodyLimitBytes,
    bodyKind: spec.bodyKind ?? 'json',
    resultKind: spec.resultKind ?? 'json',
    ifMatch: spec.ifMatch ?? 'version',
    isMutation: spec.method !== 'GET',
  };
}

/** What any mutation may be bound to; each is a header on the wire. */
export interface Conditions {
  /** Makes a repeat harmless: the same key never takes effect twice. */
  readonly idempotencyKey?: string;
  /** Proves that the caller holds the lease. */
  readonly leaseToken?: number;
  /** How long to wait, in milliseconds, while somebody else holds the lease; 0 or absent: refused at once. */
  readonly leaseWaitMs?: number;
  /** The life of the sandbox that is meant. */
  readonly generation?: number;
  /** The version that must still be the current one. */
  readonly expectedVersion?: number;
}

export const conditionHeaders = {
  idempotencyKey: 'Idempotency-Key',
  leaseToken: 'Atoll-Lease-Token',
  leaseWaitMs: 'Atoll-Lease-Wait-Ms',
  generation: 'Atoll-Generation',
  expectedVersion: 'If-Match',
} as const satisfies Record<keyof Conditions, string>;

/** Errors that any route may answer with. */
export const commonErrors = [
  'invalid_request',
  'unauthenticated',
  'forbidden',
  'payload_too_large',
  'shutting_down',
  'internal',
] as const satisfies readonly ErrorCode[];

/** Errors that any mutation may answer with. */
export const mutationErrors = [
  'idempotency_key_reused',
  'operation_in_doubt',
  'insufficient_storage',
] as const satisfies readonly ErrorCode[];
