/**
 * The output of `seq 100000000 199999999`: a gigabyte in which every byte's place can be told from its line. A checker takes it in pieces and
 * knows at every byte what must come.
 */
const first = 100_000_000;
const lineBytes = 10;
const blockLines = 10_000;
const blockBytes = blockLines * lineBytes;

export const numberedBytes = 1_000_000_000;
export const numberedCommand = `seq ${first} ${first + numberedBytes / lineBytes - 1}`;

export class NumberedChecker {
  /** Where the next byte belongs; `undefined` after a gap, until a line has told. */
  #place: number | undefined = 0;
  #torn = '';
  #block = { index: -1, bytes: Buffer.alloc(0) };
  /** Bytes that were compared. */
  checked = 0;
  /** Bytes that came between a gap and the first whole line behind it. */
  unplaced = 0;

  get place(): number | undefined {
    return this.#place;
  }

  /** Some bytes are missing here. */
  gap(): void {
    this.#place = undefined;
    this.#torn = '';
  }

  take(bytes: Uint8Array): void {
    const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const rest = this.#place === undefined ? this.#findPlace(all) : all;
    for (let at = 0; at < rest.byteLength; ) {
      const place = this.#place!;
      const within = place % blockBytes;
      const expected = this.#expected(Math.floor(place / blockBytes)).subarray(within, within + rest.byteLength - at);
      const found = rest.subarray(at, at + expected.byteLength);
      if (!found.equals(expected)) throw new Error(`Byte ${place} of the output and those behind it are wrong.`);
      at += expected.byteLength;
      this.#place = place + expected.byteLength;
      this.checked += expected.byteLength;
    }
  }

  /** The bytes from the first whole line on, which says where it belongs. */
  #findPlace(bytes: Buffer): Buffer {
    const before = this.#torn.length;
    this.#torn += bytes.subarray(0, 3 * lineBytes).toString('latin1');
    const match = /\n(\d{9})\n/.exec(this.#torn);
    if (match === null) {
      this.unplaced += bytes.byteLength;
      return Buffer.alloc(0);
    }
    const at = match.index + 1 - before;
    this.#place = (Number(match[1]) - first) * lineBytes;
    if (at < 0) throw new Error('A line came in pieces too small for this check.');
    this.unplaced += at;
    return bytes.subarray(at);
  }

  #expected(index: number): Buffer {
    if (this.#block.index !== index) {
      const start = first + index * blockLines;
      let text = '';
      for (let i = 0; i < blockLines; i++) text += `${start + i}\n`;
      this.#block = { index, bytes: Buffer.from(text, 'latin1') };
    }
    return this.#block.bytes;
  }
}
