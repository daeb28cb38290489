/** A refusal on a connection that has no response object: it is written as it stands, and the connection ends. */
import { STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import { newId, type PlatformError } from '../protocol/index.ts';

export function refuseBare(socket: Duplex, refusal: PlatformError): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const requestId = newId('request');
  const { code, message, details, status } = refusal;
  const body = JSON.stringify({ error: { code, message, details, requestId } });
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\nRequest-Id: ${requestId}\r\n` +
      `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
