/**
 * Goes through a tar stream entry by entry: leaves some out, or reads a few small files. Long names come as pax headers (`x`) or GNU long names
 * (`L`, `K`) before their entry and go with it. Bytes pass as they come; nothing is held whole but names and what is asked for.
 */
import { PlatformError } from '../protocol/index.ts';

const block = 512;
/** Of one extended header. */
const extendedMax = 1024 * 1024;

interface Entry {
  /** Relative, without `./` before and `/` behind. */
  readonly path: string;
  readonly isDirectory: boolean;
  readonly isFile: boolean;
  /** The header with what belongs before it. */
  readonly header: Uint8Array;
  readonly sizeBytes: number;
}

/** Those that are to be kept; the end of the archive always is. The root itself is. */
export async function* filterTar(
  tar: AsyncIterable<Uint8Array>,
  isKept: (path: string, isDirectory: boolean) => boolean,
): AsyncGenerator<Uint8Array> {
  const reader = new TarReader(tar);
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const keeps = entry.path === '' || isKept(entry.path, entry.isDirectory);
    if (keeps) yield entry.header;
    for await (const chunk of reader.body(padded(entry.sizeBytes))) if (keeps) yield chunk;
  }
  yield new Uint8Array(2 * block);
}

/** The texts of the files that are wanted, by path. Refuses more of them, or larger ones, than it is told. */
export async function readTarFiles(
  tar: AsyncIterable<Uint8Array>,
  wanted: { readonly isWanted: (path: string) => boolean; readonly files: number; readonly bytes: number },
): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  const reader = new TarReader(tar);
  for (let entry = await reader.next(); entry !== undefined; entry = await reader.next()) {
    const { path, sizeBytes } = entry;
    const isRead = entry.isFile && wanted.isWanted(path);
    if (isRead && (texts.size >= wanted.files || sizeBytes > wanted.bytes)) {
      const message = `${path} is too large, or one of too many: ${wanted.files} files of ${wanted.bytes} bytes are read.`;
      throw new PlatformError('limit_exceeded', message, { details: { path } });
    }
    const chunks: Uint8Array[] = [];
    for await (const chunk of reader.body(padded(sizeBytes))) if (isRead) chunks.push(chunk);
    if (isRead) texts.set(path, Buffer.concat(chunks).subarray(0, sizeBytes).toString('utf8'));
  }
  return texts;
}

class TarReader {
  readonly #source: AsyncIterator<Uint8Array>;
  #rest: Uint8Array = new Uint8Array();

  constructor(tar: AsyncIterable<Uint8Array>) {
    this.#source = tar[Symbol.asyncIterator]();
  }

  /** Its body must be read before the next one. undefined: the archive has ended, and so has the stream. */
  async next(): Promise<Entry | undefined> {
    const before: Uint8Array[] = [];
    let longName: string | undefined;
    for (;;) {
      const header = await this.#exactly(block);
      if (header === undefined || header.every((byte) => byte === 0)) {
        await this.#drain();
        return undefined;
      }
      const type = String.fromCharCode(header[156] ?? 0);
      const sizeBytes = sizeOf(header);
      if (type === 'x' || type === 'L' || type === 'K' || type === 'g') {
        if (sizeBytes > extendedMax) throw broken('An extended header is too large.');
        const body = await this.#exactly(padded(sizeBytes));
        if (body === undefined) throw broken('It ends in the middle of a header.');
        before.push(header, body);
        const name = type === 'x' ? paxPath(body.subarray(0, sizeBytes)) : type === 'L' ? textOf(body) : undefined;
        longName = name ?? longName;
        continue;
      }
      const path = (longName ?? nameOf(header)).replace(/^(?:\.\/)+/, '').replace(/\/+$/, '');
      return {
        path: path === '.' ? '' : path,
        isDirectory: type === '5',
        isFile: type === '0' || type === '\0',
        header: Buffer.concat([...before, header]),
        // Links and directories may name a size; they have no body.
        sizeBytes: type === '0' || type === '\0' || type === '7' ? sizeBytes : 0,
      };
    }
  }

  async *body(bytes: number): AsyncGenerator<Uint8Array> {
    for (let left = bytes; left > 0; ) {
      const chunk = await this.#some();
      if (chunk === undefined) throw broken('It ends in the middle of a file.');
      const part = chunk.subarray(0, left);
      this.#rest = chunk.subarray(part.byteLength);
      left -= part.byteLength;
      yield part;
    }
  }

  async #exactly(bytes: number): Promise<Uint8Array | undefined> {
    const chunks: Uint8Array[] = [];
    let left = bytes;
    while (left > 0) {
      const chunk = await this.#some();
      if (chunk === undefined) {
        if (left === bytes) return undefined;
        throw broken('It ends in the middle of a block.');
      }
      const part = chunk.subarray(0, left);
      this.#rest = chunk.subarray(part.byteLength);
      left -= part.byteLength;
      chunks.push(part);
    }
    return Buffer.concat(chunks);
  }

  async #some(): Promise<Uint8Array | undefined> {
    while (this.#rest.byteLength === 0) {
      const next = await this.#source.next();
      if (next.done === true) return undefined;
      this.#rest = next.value;
    }
    return this.#rest;
  }

  async #drain(): Promise<void> {
    for (let next = await this.#source.next(); next.done !== true; next = await this.#source.next());
  }
}

function padded(bytes: number): number {
  return Math.ceil(bytes / block) * block;
}

/** In octal, or in base 256 where the first bit is set. */
function sizeOf(header: Uint8Array): number {
  const field = header.subarray(124, 136);
  if ((field[0]! & 0x80) === 0) return Number.parseInt(textOf(field).trim() || '0', 8);
  let size = 0;
  for (const byte of field.subarray(1)) size = size * 256 + byte;
  return size;
}

function nameOf(header: Uint8Array): string {
  const name = textOf(header.subarray(0, 100));
  const isUstar = textOf(header.subarray(257, 262)) === 'ustar';
  const prefix = isUstar ? textOf(header.subarray(345, 500)) : '';
  return prefix === '' ? name : `${prefix}/${name}`;
}

function textOf(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return Buffer.from(end === -1 ? bytes : bytes.subarray(0, end)).toString('utf8');
}

/** Records are `length key=value\n`, their length in bytes. */
function paxPath(body: Uint8Array): string | undefined {
  const bytes = Buffer.from(body);
  let path: string | undefined;
  for (let at = 0; at < bytes.length; ) {
    const length = Number.parseInt(bytes.subarray(at, at + 20).toString('latin1'), 10);
    if (!(length > 0)) break;
    const record = bytes.subarray(at, at + length - 1).toString('utf8');
    const text = record.slice(record.indexOf(' ') + 1);
    if (text.startsWith('path=')) path = text.slice('path='.length);
    at += length;
  }
  return path;
}

function broken(why: string): PlatformError {
  return new PlatformError('invalid_request', `This is no tar archive. ${why}`);
}
