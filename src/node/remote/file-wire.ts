/**
 * How the file part of NodeApi stands on HTTP. Orders are JSON. Where bytes go in, they follow the order in the same body, behind its length; where
 * they come out, they are the answer's body, and what is known of them is a header. A body that is cut off failed.
 */
import { z } from 'zod';
import { PlatformError } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import { parseJson } from './node-wire.ts';

export const factsHeader = 'atoll-facts';
/** Of an order about files or workspaces, a commit's message included. */
const orderMaxBytes = 2 * 1024 * 1024;
const lengthBytes = 4;

const count = z.int().nonnegative();
const path = z.string().min(1).max(4_095);
const mode = z.int().min(0).max(0o7777).nullable();
const owner = z.strictObject({ user: z.string().max(64), group: z.string().max(64).nullable() }).nullable();
const fileOrder = lifeOrder.extend({ user: z.string().max(64).nullable(), leaseToken: count.nullable() });
const fromTo = { from: path, to: path, replace: z.boolean() };

export const fileActionOrder = fileOrder.extend({
  action: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('stat'), path, followLinks: z.boolean() }),
    z.strictObject({
      kind: z.literal('list'),
      path,
      depth: z.int().min(1).max(1_000),
      limit: z.int().min(1).max(10_000),
      after: z.string().max(16_384).nullable(),
    }),
    z.strictObject({ kind: z.literal('makeDirectory'), path, mode, parents: z.boolean() }),
    z.strictObject({ kind: z.literal('move'), ...fromTo }),
    z.strictObject({ kind: z.literal('copy'), ...fromTo, recursive: z.boolean() }),
    z.strictObject({ kind: z.literal('remove'), path, recursive: z.boolean() }),
    z.strictObject({ kind: z.literal('changeAttributes'), path, mode, owner }),
    z.strictObject({ kind: z.literal('labels'), path }),
    z.strictObject({
      kind: z.literal('setLabels'),
      path,
      prefix: z.string(),
      labels: z.record(z.string(), z.string()),
    }),
  ]),
});
export const fileChangesOrder = fileOrder.extend({
  path,
  since: z.string().max(100).nullable(),
  limit: z.int().min(1).max(10_000),
});
export const readFileOrder = fileOrder.extend({ path, offset: z.int(), length: count.nullable() });
export const treeOrder = fileOrder.extend({ path });
export const watchFilesOrder = fileOrder.extend({ path, recursive: z.boolean() });
export const writeFileOrder = fileOrder.extend({
  path,
  how: z.enum(['replace', 'append']),
  mode,
  owner,
  parents: z.boolean(),
  expected: z.discriminatedUnion('kind', [
    z.strictObject({ kind: z.literal('any') }),
    z.strictObject({ kind: z.literal('absent') }),
    z.strictObject({ kind: z.literal('etag'), etag: z.string().max(100) }),
  ]),
});

export function packOrder(order: unknown): Buffer {
  const json = Buffer.from(JSON.stringify(order));
  const length = Buffer.allocUnsafe(lengthBytes);
  length.writeUInt32LE(json.byteLength);
  return Buffer.concat([length, json]);
}

/** The order in front of a stream, and the rest of the stream. */
export async function unpackOrder(
  body: AsyncIterable<Buffer>,
): Promise<{ readonly order: unknown; readonly rest: AsyncIterable<Uint8Array> }> {
  const iterator = body[Symbol.asyncIterator]();
  let held = Buffer.alloc(0);
  const fill = async (bytes: number) => {
    while (held.byteLength < bytes) {
      const item = await iterator.next();
      if (item.done) throw new PlatformError('invalid_request', 'The body is cut short.');
      held = Buffer.concat([held, item.value]);
    }
  };
  await fill(lengthBytes);
  const length = held.readUInt32LE(0);
  if (length > orderMaxBytes) throw new PlatformError('invalid_request', 'The order is too long.');
  await fill(lengthBytes + length);
  const order = parseJson(held.subarray(lengthBytes, lengthBytes + length));
  const first = held.subarray(lengthBytes + length);
  async function* rest(): AsyncGenerator<Uint8Array, void> {
    if (first.byteLength > 0) yield first;
    for (let item = await iterator.next(); !item.done; item = await iterator.next()) yield item.value;
  }
  return { order, rest: rest() };
}

/** In base64, because paths are not ASCII. */
export function packFacts(facts: unknown): string {
  return Buffer.from(JSON.stringify(facts)).toString('base64');
}

export function unpackFacts<Facts>(header: string | string[] | undefined): Facts {
  return parseJson(Buffer.from(String(header ?? ''), 'base64')) as Facts;
}
