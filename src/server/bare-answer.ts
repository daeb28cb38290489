/** A refusal on a connection that has no response of HTTP any more, or never had one. The connection ends with it. */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { PlatformError } from '../protocol/index.ts';

export function refuseOnConnection(socket: Duplex, refusal: PlatformError, requestId: string): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const { code, message, details, status } = refusal;
  const body = JSON.stringify({ error: { code, message, details, requestId } });
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nRequest-Id: ${requestId}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
