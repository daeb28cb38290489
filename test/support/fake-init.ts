/**
 * An init that says what a test tells it to, byte for byte: for answers that a real one never gives. It listens where a node looks for the
 * init of a sandbox.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encodeFrame, type Frame, FrameReader, u16, u32, u64 } from '../../src/base/index.ts';

export interface FakeInit {
  readonly directory: string;
  close(): Promise<void>;
}

/** Called with every frame of every connection; `kind` is what its hello said: 1 control, 2 run. */
export type FakeAnswer = (call: { readonly kind: number; readonly frame: Frame; readonly socket: Socket }) => void;

export async function listenAsInit(
  answer: FakeAnswer,
  options: { readonly generation?: number } = {},
): Promise<FakeInit> {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-fake-init-'));
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    const reader = new FrameReader({ limitBytes: 8 * 1024 * 1024 });
    let kind = 0;
    socket.on('data', (chunk: Buffer) => {
      for (const frame of reader.push(chunk)) {
        if (frame.type !== 1) answer({ kind, frame, socket });
        else {
          kind = frame.body.readUInt8(2);
          socket.write(encodeFrame(2, u16(1), u64(options.generation ?? 1)));
        }
      }
    });
  });
  const listening = Promise.withResolvers<void>();
  server.listen(join(directory, 'init.sock'), listening.resolve);
  await listening.promise;
  return {
    directory,
    close: async () => {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      for (const socket of sockets) socket.destroy();
      await closed.promise;
      await rm(directory, { recursive: true });
    },
  };
}

export const fakeFrames = {
  started: () => encodeFrame(41, u32(7)),
  refused: (code: number, errno = 0, text = '') => encodeFrame(42, u16(code), u32(errno), Buffer.from(text)),
  stdout: (text: string) => encodeFrame(43, Buffer.from(text)),
  exited: (waitStatus: number, why = 0) => encodeFrame(45, u32(waitStatus), Buffer.of(why), u64(1_000), u64(1_005)),
  treeEnded: () => encodeFrame(46),
} as const;
