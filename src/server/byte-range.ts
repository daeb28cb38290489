/** `Range: bytes=…` with one range. Whatever else the header says is ignored, as HTTP wants it: the answer is then the whole. */

export interface ByteRange {
  /** Negative: so many bytes from the end. */
  readonly offset: number;
  /** null: to the end. */
  readonly length: number | null;
}

export function parseRange(header: string | undefined): ByteRange | undefined {
  const found = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '');
  if (found === null) return undefined;
  const [, first = '', last = ''] = found;
  if (first === '' && last === '') return undefined;
  if (first === '') return { offset: -Number(last), length: null };
  if (last === '') return { offset: Number(first), length: null };
  const length = Number(last) - Number(first) + 1;
  return length <= 0 ? undefined : { offset: Number(first), length };
}
