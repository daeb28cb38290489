/**
 * `multipart/form-data` as a stream of parts, each with a stream of bytes. A part's bytes are to be read before the next part is asked for; what
 * is left of them is skipped. Nothing is held but the bytes that could be the beginning of a boundary.
 */
import { EnvdError } from './envd-error.ts';

const headersMaxBytes = 16 * 1024;
const partsMax = 10_000;

export interface Part {
  readonly name: string;
  readonly filename: string | undefined;
  readonly bytes: AsyncIterable<Uint8Array>;
}

export function boundaryOf(contentType: string): string {
  const found = /;\s*boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))/i.exec(contentType);
  const boundary = found?.[1] ?? found?.[2];
  if (boundary === undefined) throw new EnvdError('invalid_argument', 'The multipart body has no boundary.');
  return boundary;
}

export async function* partsOf(source: AsyncIterable<Uint8Array>, boundary: string): AsyncGenerator<Part, void> {
  const reader = new Reader(source);
  // The first boundary may stand at the very beginning; all others follow a line break.
  reader.prepend(Buffer.from('\r\n'));
  const mark = Buffer.from(`\r\n--${boundary}`);
  await skip(reader.until(mark));
  for (let count = 0; ; count++) {
    const behind = await reader.take(2);
    if (behind.toString() === '--') return;
    if (behind.toString() !== '\r\n') throw broken();
    if (count >= partsMax) throw new EnvdError('invalid_argument', `A request has at most ${partsMax} parts.`);
    const headers = await reader.head();
    const bytes = reader.until(mark);
    yield { ...dispositionOf(headers), bytes };
    await skip(bytes);
  }
}

class Reader {
  readonly #source: AsyncIterator<Uint8Array>;
  #held = Buffer.alloc(0);

  constructor(source: AsyncIterable<Uint8Array>) {
    this.#source = source[Symbol.asyncIterator]();
  }

  prepend(bytes: Buffer): void {
    this.#held = Buffer.concat([bytes, this.#held]);
  }

  async take(count: number): Promise<Buffer> {
    while (this.#held.byteLength < count) await this.#more();
    const taken = this.#held.subarray(0, count);
    this.#held = this.#held.subarray(count);
    return taken;
  }

  async head(): Promise<string> {
    for (;;) {
      if (this.#held.subarray(0, 2).toString() === '\r\n') return (await this.take(2)) && '';
      const end = this.#held.indexOf('\r\n\r\n');
      if (end !== -1) return (await this.take(end + 4)).toString('utf8');
      if (this.#held.byteLength > headersMaxBytes)
        throw new EnvdError('invalid_argument', 'The headers of a part are too large.');
      await this.#more();
    }
  }

  /** Everything before the mark, which is taken too. */
  async *until(mark: Buffer): AsyncGenerator<Uint8Array, void> {
    for (;;) {
      const at = this.#held.indexOf(mark);
      if (at !== -1) {
        const last = await this.take(at);
        await this.take(mark.byteLength);
        if (last.byteLength > 0) yield last;
        return;
      }
      const safe = this.#held.byteLength - mark.byteLength;
      if (safe > 0) yield await this.take(safe);
      await this.#more();
    }
  }

  async #more(): Promise<void> {
    const next = await this.#source.next();
    if (next.done) throw broken();
    this.#held = Buffer.concat([this.#held, next.value]);
  }
}

function dispositionOf(headers: string): { readonly name: string; readonly filename: string | undefined } {
  const line = headers.split('\r\n').find((text) => /^content-disposition:/i.test(text)) ?? '';
  const name = /;\s*name="([^"]*)"/i.exec(line)?.[1];
  const filename = /;\s*filename="([^"]*)"/i.exec(line)?.[1];
  return {
    name: name === undefined ? '' : unescaped(name),
    filename: filename === undefined ? undefined : unescaped(filename),
  };
}

/** As forms write what would end the text. */
function unescaped(text: string): string {
  return text.replaceAll('%22', '"').replaceAll('%0D', '\r').replaceAll('%0A', '\n');
}

async function skip(bytes: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const _ of bytes);
}

function broken(): EnvdError {
  return new EnvdError('invalid_argument', 'The multipart body is broken or cut off.');
}
