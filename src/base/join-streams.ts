/**
 * Carries bytes between two connections, both ways, each at the pace of its reader. An end on one side is passed on as an end, so that
 * half-closed connections work; a failure or a cut on one side cuts the other, so that what is cut short here never looks complete. A reset
 * inside a sandbox is an end by the time it comes here: init's socket has no other word for it.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { TLSSocket } from 'node:tls';

export function joinStreams(a: Duplex, b: Duplex): void {
  if (a.destroyed || b.destroyed) {
    cut(a);
    cut(b);
    return;
  }
  follow(a, b);
  follow(b, a);
  a.pipe(b);
  b.pipe(a);
}

/** When `from` is gone, so is `to`: at once when it broke, and behind its last bytes when it had ended. */
function follow(from: Duplex, to: Duplex): void {
  from.on('error', () => cut(to));
  from.on('close', () => {
    if (!from.readableEnded || !from.writableFinished) cut(to);
  });
}

/** By TCP a plain close would look like the end of the bytes. TLS tells the two apart by itself. */
function cut(stream: Duplex): void {
  const isTcp = stream instanceof Socket && !(stream instanceof TLSSocket) && stream.remoteFamily !== undefined;
  if (isTcp) stream.resetAndDestroy();
  else stream.destroy();
}
