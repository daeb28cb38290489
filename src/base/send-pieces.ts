/** Bytes that are handed on in pieces, at the pace of whoever takes them. */
import type { Writable } from 'node:stream';

export interface Pieces extends AsyncIterable<Uint8Array> {
  /** Takes back a piece that nobody looks at any more: its memory serves the next ones. A piece need not be given back. */
  giveBack?(piece: Uint8Array): void;
}

/** Handed to the connection and not yet taken by the kernel: above it the next piece is not asked for. */
const onTheWayMaxBytes = 512 * 1024;

/** Whether all of them were written; false: the connection is over. What the pieces throw is thrown, and they are told that no more are wanted. */
export async function sendPieces(to: Writable, pieces: Pieces): Promise<boolean> {
  const iterator = pieces[Symbol.asyncIterator]();
  let onTheWayBytes = 0;
  let isBroken = false;
  let goOn = () => {};
  const onClose = () => goOn();
  to.on('close', onClose);
  try {
    for (;;) {
      const { done, value } = await iterator.next();
      // Broken comes first: what is written after it fails at once, and a loop of that would not let the end be told.
      if (isBroken || to.destroyed) return false;
      if (done) return true;
      onTheWayBytes += value.byteLength;
      to.write(value, (error) => {
        isBroken ||= error != null;
        onTheWayBytes -= value.byteLength;
        pieces.giveBack?.(value);
        goOn();
      });
      while (onTheWayBytes > onTheWayMaxBytes && !isBroken && !to.destroyed) {
        await new Promise<void>((resolve) => {
          goOn = resolve;
        });
      }
    }
  } finally {
    to.off('close', onClose);
    await iterator.return?.();
  }
}
