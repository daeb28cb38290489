import { once } from 'node:events';
import { Writable } from 'node:stream';
import { expect, test } from 'vitest';
import { sendPieces } from './send-pieces.ts';

/** Takes a write only when it is told to. */
class SlowWritable extends Writable {
  readonly waiting: (() => void)[] = [];

  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    this.waiting.push(done);
    this.emit('written');
  }
}

function piecesOf(count: number, bytes: number) {
  const seen = { asked: 0, isReturned: false, givenBack: [] as Uint8Array[] };
  const pieces = {
    [Symbol.asyncIterator]: () => ({
      next: async () =>
        seen.asked++ < count
          ? { done: false as const, value: new Uint8Array(bytes).fill(seen.asked) }
          : { done: true as const, value: undefined },
      return: async () => {
        seen.isReturned = true;
        return { done: true as const, value: undefined };
      },
    }),
    giveBack: (piece: Uint8Array) => seen.givenBack.push(piece),
  };
  return { pieces, seen };
}

test('a piece is given back when it was taken, not before', async () => {
  const to = new SlowWritable();
  const { pieces, seen } = piecesOf(2, 10);
  const sent = sendPieces(to, pieces);
  await once(to, 'written');
  expect(seen.givenBack).toEqual([]);
  const second = once(to, 'written');
  to.waiting.shift()!();
  await second;
  await new Promise((resolve) => setImmediate(resolve));
  expect(seen.givenBack.map((piece) => piece[0])).toEqual([1]);
  to.waiting.shift()!();
  expect(await sent).toBe(true);
  await new Promise((resolve) => to.end(resolve));
  expect(seen.givenBack.map((piece) => piece[0])).toEqual([1, 2]);
  expect(seen.isReturned).toBe(true);
});

test('no more is asked for than may be on the way', async () => {
  const to = new SlowWritable();
  const { pieces, seen } = piecesOf(100, 200 * 1024);
  const sent = sendPieces(to, pieces);
  for (let taken = 0; taken < 20; taken++) {
    if (to.waiting.length === 0) await once(to, 'written');
    await new Promise((resolve) => setImmediate(resolve));
    // Three pieces are beyond 512 KiB.
    expect(seen.asked).toBe(taken + 3);
    to.waiting.shift()!();
  }
  to.destroy();
  expect(await sent).toBe(false);
  expect(seen.isReturned).toBe(true);
});

test('a connection that is over while it is full ends the sending', async () => {
  const to = new SlowWritable();
  const { pieces, seen } = piecesOf(3, 1024 * 1024);
  const sent = sendPieces(to, pieces);
  await once(to, 'written');
  to.destroy();
  expect(await sent).toBe(false);
  expect(seen).toMatchObject({ isReturned: true });
});

test('a write that fails ends the sending, though nothing else tells of it', async () => {
  const to = new Writable({ autoDestroy: false, write: (_chunk, _encoding, done) => done(new Error('reset')) });
  to.on('error', () => {});
  async function* endless(): AsyncGenerator<Uint8Array, void> {
    for (;;) yield new Uint8Array(10);
  }
  expect(await sendPieces(to, endless())).toBe(false);
});

test('what the pieces throw is thrown', async () => {
  async function* failing(): AsyncGenerator<Uint8Array, void> {
    yield new Uint8Array(3);
    throw new Error('broken');
  }
  const to = new Writable({ write: (_chunk, _encoding, done) => done() });
  await expect(sendPieces(to, failing())).rejects.toThrow('broken');
});
