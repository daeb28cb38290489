/** Ranges of IPv4 and IPv6 addresses as numbers: what a text means, and whether one range lies within another. */

export interface AddressRange {
  readonly family: 4 | 6;
  /** Of the first address. */
  readonly first: bigint;
  readonly prefixLength: number;
}

const bits = { 4: 32, 6: 128 } as const;

/** `address` or `address/length`; undefined when it is neither. Bits behind the length are dropped. */
export function addressRange(text: string): AddressRange | undefined {
  const match = /^([0-9a-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text);
  if (match === null) return undefined;
  const address = match[1]!;
  const family = address.includes(':') ? 6 : 4;
  const value = family === 6 ? parseAddress6(address) : parseAddress4(address);
  const prefixLength = match[2] === undefined ? bits[family] : Number(match[2]);
  if (value === undefined || prefixLength > bits[family]) return undefined;
  const rest = BigInt(bits[family] - prefixLength);
  return { family, first: (value >> rest) << rest, prefixLength };
}

/** Whether every address of the one range is also in the other. Texts that are no ranges are in none. */
export function isWithin(inner: string, outer: string): boolean {
  const [a, b] = [addressRange(inner), addressRange(outer)];
  if (a === undefined || b === undefined || a.family !== b.family || a.prefixLength < b.prefixLength) return false;
  const rest = BigInt(bits[a.family] - b.prefixLength);
  return a.first >> rest === b.first >> rest;
}

function parseAddress4(text: string): bigint | undefined {
  const parts = text.split('.');
  if (parts.length !== 4) return undefined;
  let value = 0n;
  for (const part of parts) {
    if (!/^(0|[1-9]\d{0,2})$/.test(part) || Number(part) > 255) return undefined;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

function parseAddress6(text: string): bigint | undefined {
  const halves = text.split('::');
  if (halves.length > 2) return undefined;
  const [head, tail] = halves.map(parseGroups);
  if (head === undefined || (halves.length === 2 && tail === undefined)) return undefined;
  const given = head.length + (tail?.length ?? 0);
  if (halves.length === 1 ? given !== 8 : given > 7) return undefined;
  const groups = [...head, ...Array.from({ length: 8 - given }, () => 0), ...(tail ?? [])];
  return groups.reduce((value, group) => (value << 16n) | BigInt(group), 0n);
}

/** 16-bit groups between colons, the last two possibly written as IPv4. */
function parseGroups(text: string): number[] | undefined {
  if (text === '') return [];
  const groups: number[] = [];
  const parts = text.split(':');
  for (const [index, part] of parts.entries()) {
    if (part.includes('.')) {
      const embedded = index === parts.length - 1 ? parseAddress4(part) : undefined;
      if (embedded === undefined) return undefined;
      groups.push(Number(embedded >> 16n), Number(embedded & 0xffffn));
    } else {
      if (!/^[0-9a-fA-F]{1,4}$/.test(part)) return undefined;
      groups.push(Number.parseInt(part, 16));
    }
  }
  return groups;
}

/** The range as plainly as it can be written: eight groups without a shorthand, or four numbers, and the length. */
export function rangeText({ family, first, prefixLength }: AddressRange): string {
  const [count, width, radix, mark] = family === 6 ? ([8, 16, 16, ':'] as const) : ([4, 8, 10, '.'] as const);
  const parts = Array.from({ length: count }, (_, index) => {
    const shift = BigInt((count - 1 - index) * width);
    return Number((first >> shift) & BigInt(2 ** width - 1)).toString(radix);
  });
  return `${parts.join(mark)}/${prefixLength}`;
}
