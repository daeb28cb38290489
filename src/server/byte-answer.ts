/**
 * An answer made of bytes, sent at the pace of its reader. When the bytes fail midway the connection is cut: the reader then knows that it does
 * not have all of them, from the length that was announced or from the missing end of the chunks.
 */
import type { Exchange } from './exchange.ts';
import { streamed } from './route-binding.ts';

export async function sendBytes(
  exchange: Exchange,
  bytes: AsyncIterable<Uint8Array>,
  options: { readonly status: number; readonly headers: Readonly<Record<string, string>> },
): Promise<typeof streamed> {
  const { response, requestId } = exchange;
  const iterator = bytes[Symbol.asyncIterator]();
  try {
    if (response.destroyed) return streamed;
    response.writeHead(options.status, { 'Request-Id': requestId, 'Cache-Control': 'no-store', ...options.headers });
    if (exchange.method === 'HEAD') {
      response.end();
      return streamed;
    }
    for (let item = await iterator.next(); !item.done; item = await iterator.next()) {
      if (response.destroyed) return streamed;
      if (!response.write(item.value)) await drained(exchange);
    }
    response.end();
  } catch (error) {
    response.destroy();
    throw error;
  } finally {
    await iterator.return?.();
  }
  return streamed;
}

function drained({ response }: Exchange): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      response.off('drain', done);
      response.off('close', done);
      resolve();
    };
    response.once('drain', done);
    response.once('close', done);
    if (response.destroyed) done();
  });
}
