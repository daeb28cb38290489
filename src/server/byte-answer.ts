/**
 * An answer made of bytes, sent at the pace of its reader. When the bytes fail midway the connection is cut: the reader then knows that it does
 * not have all of them, from the length that was announced or from the missing end of the chunks.
 */
import { type Pieces, sendPieces } from '../base/index.ts';
import type { Exchange } from './exchange.ts';
import { streamed } from './route-binding.ts';

export async function sendBytes(
  exchange: Exchange,
  bytes: Pieces,
  options: { readonly status: number; readonly headers: Readonly<Record<string, string>> },
): Promise<typeof streamed> {
  const { response, requestId, method } = exchange;
  if (!response.destroyed) {
    response.writeHead(options.status, { 'Request-Id': requestId, 'Cache-Control': 'no-store', ...options.headers });
  }
  try {
    const isWanted = method !== 'HEAD' && !response.destroyed;
    if (!isWanted) await bytes[Symbol.asyncIterator]().return?.();
    const isSent = !isWanted || (await sendPieces(response, bytes));
    if (isSent) response.end();
  } catch (error) {
    response.destroy();
    throw error;
  }
  return streamed;
}
