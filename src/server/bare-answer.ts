/**
 * A refusal on a connection that has no response of HTTP any more, or never had one. The connection ends with it, whatever the peer does: the
 * HTTP server looks after it no longer.
 */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { systemTimers } from '../base/index.ts';
import type { PlatformError } from '../protocol/index.ts';

/** How long a peer may take to end its side of a connection that has ended on ours. */
const endMs = 2_000;

export function refuseOnConnection(socket: Duplex, refusal: PlatformError, requestId: string): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const { code, message, details, status } = refusal;
  const body = JSON.stringify({ error: { code, message, details, requestId } });
  endConnection(
    socket,
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nRequest-Id: ${requestId}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}

/** Ends it with these last words. What the peer still says is dropped, and a peer that does not end is cut. */
export function endConnection(socket: Duplex, lastWords = ''): void {
  socket.end(lastWords);
  socket.resume();
  const cancel = systemTimers.after(endMs, () => socket.destroy());
  socket.once('close', cancel);
}
