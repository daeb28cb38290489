/**
 * The entries of a tar stream: ustar, GNU long names, pax. Nothing is interpreted beyond the format: names are as they stand there.
 *
 * Invariants:
 *  - The content of an entry is read in full or passed over before the next is given, so the reader is always at a header.
 *  - An archive ends with a block of zeros or where its stream ends behind the content of an entry; anything else is refused.
 */
import type { ByteReader } from './byte-reader.ts';
import { refuseImage } from './image-limits.ts';
import { checkGlobalPax, type PaxTime, type PaxValues, parsePax } from './pax-records.ts';
import { blockBytes, parseTarHeader, type TarHeader, tarTypes } from './tar-header.ts';

export interface TarEntry {
  readonly type: string;
  /** Byte strings: one character per byte. */
  readonly name: string;
  readonly target: string;
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly size: number;
  readonly mtime: PaxTime;
  readonly attributes: ReadonlyMap<string, Buffer>;
  /** Where the content begins in the stream. */
  readonly offset: number;
  /** The content in pieces; once, before the next entry is asked for. */
  content(): AsyncGenerator<Buffer, void>;
}

/** Bytes of one pax header or long name. */
const metadataBytesMax = 1024 * 1024;
/** Headers that describe the one after them. */
const metadataHeadersMax = 8;
const withoutContent: ReadonlySet<string> = new Set([
  tarTypes.hardLink,
  tarTypes.link,
  tarTypes.character,
  tarTypes.block,
  tarTypes.directory,
  tarTypes.fifo,
]);

/** What the headers before an entry's own say about it. */
interface Announced {
  name?: string;
  target?: string;
  pax?: PaxValues;
}

export async function* readTar(reader: ByteReader): AsyncGenerator<TarEntry, void> {
  for (let next = await nextEntry(reader); next !== undefined; next = await nextEntry(reader)) {
    yield next.entry;
    await next.finish();
  }
}

async function nextEntry(reader: ByteReader): Promise<{ entry: TarEntry; finish(): Promise<void> } | undefined> {
  const announced: Announced = {};
  for (let headers = 0; headers <= metadataHeadersMax; headers += 1) {
    const header = await nextHeader(reader);
    if (header === undefined) {
      if (headers > 0) refuseImage('A tar of the image ends where an entry is announced.');
      return undefined;
    }
    if (!(await takeMetadata(reader, header, announced))) return entryOf(reader, header, announced);
  }
  refuseImage(`A tar of the image describes one entry by more than ${metadataHeadersMax} headers.`);
}

async function nextHeader(reader: ByteReader): Promise<TarHeader | undefined> {
  const now = reader.takeNow(blockBytes);
  if (now !== undefined) return parseTarHeader(now);
  if (await reader.atEnd()) return undefined;
  return parseTarHeader(await reader.take(blockBytes));
}

async function takeMetadata(reader: ByteReader, header: TarHeader, announced: Announced): Promise<boolean> {
  switch (header.type) {
    case tarTypes.pax:
      announced.pax = parsePax(await readMetadata(reader, header));
      return true;
    case tarTypes.paxGlobal:
      checkGlobalPax(await readMetadata(reader, header));
      return true;
    case tarTypes.longName:
      announced.name = textOf(await readMetadata(reader, header));
      return true;
    case tarTypes.longLink:
      announced.target = textOf(await readMetadata(reader, header));
      return true;
    default:
      return false;
  }
}

async function readMetadata(reader: ByteReader, header: TarHeader): Promise<Buffer> {
  if (header.size > metadataBytesMax) refuseImage(`A layer has a header of more than ${metadataBytesMax} bytes.`);
  const bytes = Buffer.from(await reader.take(header.size));
  await reader.skip(paddingOf(header.size));
  return bytes;
}

function entryOf(reader: ByteReader, header: TarHeader, { name, target, pax }: Announced) {
  // Whoever writes a link or directory with a size means something else by it than content that follows.
  const size = withoutContent.has(header.type) ? 0 : (pax?.size ?? header.size);
  let isRead = size === 0;
  const entry: TarEntry = {
    type: header.type,
    name: pax?.path ?? name ?? header.name,
    target: pax?.linkpath ?? target ?? header.target,
    mode: header.mode,
    uid: pax?.uid ?? header.uid,
    gid: pax?.gid ?? header.gid,
    size,
    mtime: pax?.mtime ?? { seconds: header.mtime, nanoseconds: 0 },
    attributes: pax?.attributes ?? new Map(),
    offset: reader.position,
    async *content() {
      if (isRead) return;
      isRead = true;
      yield* reader.parts(size);
    },
  };
  const finish = async () => {
    if (!isRead) await reader.skip(size);
    // Some tools write neither the padding of the last entry nor blocks of zeros after it.
    await reader.skipPresent(paddingOf(size));
  };
  return { entry, finish };
}

function paddingOf(size: number): number {
  return (blockBytes - (size % blockBytes)) % blockBytes;
}

/** A long name ends with a NUL, or where its content does. */
function textOf(bytes: Buffer): string {
  const end = bytes.indexOf(0);
  return bytes.toString('latin1', 0, end === -1 ? bytes.byteLength : end);
}
