/** The frames between a node and a file worker (native/PROTOCOL.md, kind 4). The worker lives in the sandbox: what it sends is hostile input. */
import {
  BodyReader,
  encodeFrame,
  type Frame,
  field,
  MalformedFrame,
  textField,
  u8,
  u32,
  u64,
} from '../../base/index.ts';
import type { FileType } from '../../protocol/index.ts';
import { helloFrame, type Refusal } from '../init-protocol.ts';

export const fileConnectionKind = 4;
export const dataBytesMax = 256 * 1024;
/** A frame of data, or an entry with two paths; nothing else is larger. */
export const workerFrameLimitBytes = dataBytesMax + 64;
/** "As it is" for a mode, a uid or a gid. */
export const keep = 0xffff_ffff;
const toTheEnd = Buffer.alloc(8, 0xff);

const types = {
  helloOk: 2,
  helloNo: 3,
  refused: 42,
  worker: 70,
  workerOk: 71,
  done: 72,
  fault: 73,
  stat: 74,
  statIs: 75,
  read: 76,
  data: 77,
  write: 78,
  list: 79,
  entry: 80,
  make: 81,
  move: 82,
  remove: 83,
  copy: 84,
  mode: 85,
  pack: 86,
  unpack: 87,
  watch: 88,
  change: 89,
  labels: 90,
  setLabels: 91,
} as const;

const checkToken = 8;
export const dataFrameType = types.data;

export interface FileStat {
  readonly type: FileType;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly modifiedNs: bigint;
  readonly inode: bigint;
  readonly changedNs: bigint;
}

export interface Fault {
  readonly code: number;
  readonly errno: number;
}

export const changeKinds = ['created', 'modified', 'removed', 'moved from', 'moved to', 'overflow'] as const;
export type ChangeKind = (typeof changeKinds)[number];

export type WorkerAnswer =
  | { readonly kind: 'hello'; readonly generation: number }
  | { readonly kind: 'wrong version' }
  | { readonly kind: 'refused'; readonly refusal: Refusal }
  | { readonly kind: 'worker ok' }
  | { readonly kind: 'done'; readonly request: number }
  | { readonly kind: 'fault'; readonly request: number; readonly fault: Fault }
  | { readonly kind: 'stat'; readonly request: number; readonly stat: FileStat; readonly linkTarget: Buffer }
  | { readonly kind: 'data'; readonly request: number; readonly bytes: Buffer }
  | {
      readonly kind: 'entry';
      readonly request: number;
      readonly stat: FileStat;
      readonly path: Buffer;
      readonly linkTarget: Buffer;
    }
  | {
      readonly kind: 'change';
      readonly request: number;
      readonly what: ChangeKind;
      readonly cookie: number;
      readonly path: string;
    };

export function openWorkerFrames(options: {
  readonly user: string | null;
  readonly generation: number;
  readonly token: number;
}): Buffer {
  const worker = encodeFrame(
    types.worker,
    ...(options.user === null ? [] : [textField(5, options.user)]),
    field(6, u32(checkToken)),
    field(9, u64(options.token)),
    field(10, u64(options.generation)),
  );
  return Buffer.concat([helloFrame(fileConnectionKind), worker]);
}

const nul = Buffer.alloc(1);
const text = (value: string) => Buffer.from(value, 'utf8');

/** Each takes the request's number first. Paths are absolute and hold no NUL. */
export const requestFrames = {
  stat: (request: number, options: { path: string; follow: boolean }) =>
    encodeFrame(types.stat, u32(request), u8(options.follow ? 1 : 0), text(options.path)),
  read: (request: number, options: { path: string | Uint8Array; offset: number; length: number | null }) =>
    encodeFrame(
      types.read,
      u32(request),
      u64(options.offset),
      options.length === null ? toTheEnd : u64(options.length),
      typeof options.path === 'string' ? text(options.path) : options.path,
    ),
  write: (
    request: number,
    options: {
      path: string;
      append: boolean;
      parents: boolean;
      refuseExisting: boolean;
      expect: { inode: bigint; changedNs: bigint } | null;
      mode: number;
      /** An id of `keep` stays as it is in the file that is replaced. */
      owner: { uid: number; gid: number } | null;
    },
  ) => {
    const { append, parents, refuseExisting, expect, mode, owner } = options;
    const flags =
      (append ? 1 : 0) |
      (parents ? 2 : 0) |
      (refuseExisting ? 4 : 0) |
      (expect === null ? 0 : 8) |
      (owner === null ? 0 : 16);
    const expected = expect === null ? [] : [bigU64(expect.inode), bigI64(expect.changedNs)];
    const owned = owner === null ? [] : [u32(owner.uid), u32(owner.gid)];
    return encodeFrame(types.write, u32(request), u8(flags), u32(mode), ...expected, ...owned, text(options.path));
  },
  /** What stands before the bytes themselves, which follow it as they are. */
  dataHead: (request: number, length: number) => Buffer.concat([u32(1 + 4 + length), u8(types.data), u32(request)]),
  done: (request: number) => encodeFrame(types.done, u32(request)),
  /** In place of more data: what was sent so far is given up. */
  cancel: (request: number) => encodeFrame(types.fault, u32(request)),
  list: (request: number, options: { path: string; depth: number; limit: number; after: Uint8Array }) =>
    encodeFrame(
      types.list,
      u32(request),
      u32(options.depth),
      u32(options.limit),
      text(options.path),
      nul,
      options.after,
    ),
  make: (request: number, options: { path: string; parents: boolean; mode: number }) =>
    encodeFrame(types.make, u32(request), u8(options.parents ? 1 : 0), u32(options.mode), text(options.path)),
  move: (request: number, options: { from: string; to: string; replace: boolean }) =>
    encodeFrame(types.move, u32(request), u8(options.replace ? 1 : 0), text(options.from), nul, text(options.to)),
  remove: (request: number, options: { path: string; recursive: boolean }) =>
    encodeFrame(types.remove, u32(request), u8(options.recursive ? 1 : 0), text(options.path)),
  copy: (request: number, options: { from: string; to: string; recursive: boolean; replace: boolean }) =>
    encodeFrame(
      types.copy,
      u32(request),
      u8((options.recursive ? 1 : 0) | (options.replace ? 2 : 0)),
      text(options.from),
      nul,
      text(options.to),
    ),
  mode: (request: number, options: { path: string; mode: number; uid: number; gid: number }) =>
    encodeFrame(types.mode, u32(request), u32(options.mode), u32(options.uid), u32(options.gid), text(options.path)),
  pack: (request: number, path: string) => encodeFrame(types.pack, u32(request), text(path)),
  unpack: (request: number, options: { path: string; create: boolean }) =>
    encodeFrame(types.unpack, u32(request), u8(options.create ? 1 : 0), text(options.path)),
  watch: (request: number, options: { path: string; recursive: boolean }) =>
    encodeFrame(types.watch, u32(request), u8(options.recursive ? 1 : 0), text(options.path)),
  labels: (request: number, path: string) => encodeFrame(types.labels, u32(request), text(path)),
  /** No text holds a NUL. */
  setLabels: (request: number, options: { path: string; prefix: string; labels: Readonly<Record<string, string>> }) => {
    const texts = [options.path, options.prefix, ...Object.entries(options.labels).flat()];
    return encodeFrame(types.setLabels, u32(request), text(texts.map((one) => `${one}\0`).join('')));
  },
} as const;

export function parseWorkerAnswer(frame: Frame): WorkerAnswer {
  const body = new BodyReader(frame.body);
  switch (frame.type) {
    case types.helloOk:
      if (body.u16() !== 1) return { kind: 'wrong version' };
      return { kind: 'hello', generation: body.u64() };
    case types.helloNo:
      return { kind: 'wrong version' };
    case types.refused:
      return { kind: 'refused', refusal: { code: body.u16(), errno: body.u32(), text: body.rest().toString('utf8') } };
    case types.workerOk:
      return whole(body, { kind: 'worker ok' });
    case types.done:
      return whole(body, { kind: 'done', request: body.u32() });
    case types.fault:
      return { kind: 'fault', request: body.u32(), fault: { code: body.u16(), errno: body.u32() } };
    case types.statIs:
      return { kind: 'stat', request: body.u32(), stat: readStat(body), linkTarget: body.rest() };
    case types.data:
      return { kind: 'data', request: body.u32(), bytes: body.rest() };
    case types.entry:
      return {
        kind: 'entry',
        request: body.u32(),
        stat: readStat(body),
        path: body.bytes(body.u16()),
        linkTarget: body.rest(),
      };
    case types.change:
      return readChange(body);
    default:
      throw new MalformedFrame(`A file worker sent a frame of type ${frame.type}.`);
  }
}

function readStat(body: BodyReader): FileStat {
  const type = (['file', 'directory', 'symlink', 'other'] as const)[body.u8() - 1];
  if (type === undefined) throw new MalformedFrame('A file of a type that does not exist.');
  return {
    type,
    mode: body.u32() & 0o7777,
    uid: body.u32(),
    gid: body.u32(),
    size: body.u64(),
    modifiedNs: body.bytes(8).readBigInt64LE(0),
    inode: body.bytes(8).readBigUInt64LE(0),
    changedNs: body.bytes(8).readBigInt64LE(0),
  };
}

function readChange(body: BodyReader): WorkerAnswer {
  const request = body.u32();
  const what = changeKinds[body.u8() - 1];
  if (what === undefined) throw new MalformedFrame('A change of a kind that does not exist.');
  return { kind: 'change', request, what, cookie: body.u32(), path: body.rest().toString('utf8') };
}

function bigU64(value: bigint): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigUInt64LE(value);
  return bytes;
}

function bigI64(value: bigint): Buffer {
  const bytes = Buffer.allocUnsafe(8);
  bytes.writeBigInt64LE(value);
  return bytes;
}

function whole<Value>(body: BodyReader, value: Value): Value {
  body.end();
  return value;
}
