/** Frames of a file worker, said by a test in place of one (native/PROTOCOL.md, kind 4). */
import { encodeFrame, u8, u16, u32, u64 } from '../../src/base/index.ts';

export interface FakeStat {
  readonly type?: number;
  readonly mode?: number;
  readonly size?: number;
}

function statBody(stat: FakeStat): Buffer[] {
  const time = Buffer.alloc(8);
  time.writeBigInt64LE(1_700_000_000_123_456_789n);
  const { type = 1, mode = 0o100644, size = 0 } = stat;
  return [u8(type), u32(mode), u32(0), u32(0), u64(size), time, u64(77), time];
}

export const workerFrames = {
  ok: () => encodeFrame(71),
  done: (request: number) => encodeFrame(72, u32(request)),
  fault: (request: number, errno: number, code = 12) =>
    encodeFrame(73, u32(request), u16(code), u32(errno), Buffer.from('x')),
  stat: (request: number, stat: FakeStat = {}, target = '') =>
    encodeFrame(75, u32(request), ...statBody(stat), Buffer.from(target)),
  data: (request: number, bytes: string | Uint8Array) => encodeFrame(77, u32(request), Buffer.from(bytes)),
  entry: (request: number, path: string | Uint8Array, stat: FakeStat = {}) => {
    const name = Buffer.from(path);
    return encodeFrame(80, u32(request), ...statBody(stat), u16(name.length), name);
  },
  change: (request: number, what: number, path: string, cookie = 0) =>
    encodeFrame(89, u32(request), u8(what), u32(cookie), Buffer.from(path)),
} as const;

export const requestTypes = {
  worker: 70,
  done: 72,
  cancel: 73,
  stat: 74,
  read: 76,
  data: 77,
  write: 78,
  list: 79,
  remove: 83,
  pack: 86,
  watch: 88,
} as const;
