/** What every part of a node's server does with a call: read its order, check it, answer at the pace of the caller. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { z } from 'zod';
import { PlatformError } from '../../protocol/index.ts';
import { jsonType } from './node-wire.ts';

export async function readBody(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.byteLength;
    if (length > limitBytes) {
      throw new PlatformError('payload_too_large', `This call to a node has at most ${limitBytes} bytes.`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks, length);
}

export function parseOrder<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new PlatformError('invalid_request', z.prettifyError(parsed.error));
}

export function sendResult(response: ServerResponse, result: unknown): void {
  const body = JSON.stringify({ result });
  response.writeHead(200, { 'content-type': jsonType, 'content-length': Buffer.byteLength(body) });
  response.end(body);
}

/** Until there is room for more, or the caller is gone. */
export async function drained(response: ServerResponse): Promise<void> {
  if (response.destroyed) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  response.once('drain', resolve);
  response.once('close', resolve);
  await promise;
  response.off('drain', resolve);
  response.off('close', resolve);
}
