/**
 * How a connection to a port stands on HTTP: a request that asks for another protocol, with the order in a header; answered with 101 it
 * carries the service's own bytes from then on, and with anything else it is a refusal like any.
 */
import { z } from 'zod';
import { PlatformError } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import { parseJson } from './node-wire.ts';

export const portProtocol = 'atoll-port';
export const openPortMethod = 'openPort';
export const orderHeader = 'atoll-order';

export const openPortOrder = lifeOrder.extend({ port: z.int().min(1).max(65_535) });

export function packOrder(order: unknown): string {
  return Buffer.from(JSON.stringify(order)).toString('base64url');
}

export function unpackOrder<Schema extends z.ZodType>(schema: Schema, header: unknown): z.output<Schema> {
  const parsed = schema.safeParse(parseJson(Buffer.from(typeof header === 'string' ? header : '', 'base64url')));
  if (parsed.success) return parsed.data;
  throw new PlatformError('invalid_request', z.prettifyError(parsed.error));
}
