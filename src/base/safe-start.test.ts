import fc from 'fast-check';
import { expect, test } from 'vitest';
import { characterStart, safeStart } from './safe-start.ts';

const bytesOf = (text: string) => new TextEncoder().encode(text);
const startOf = (text: string) => {
  const at = safeStart(bytesOf(text));
  return at === undefined ? undefined : new TextDecoder().decode(bytesOf(text).subarray(at));
};

const cases: readonly [what: string, rest: string, shown: string | undefined][] = [
  ['the rest of a colour', '8;5;1mred\nnext', 'next'],
  ['the rest of a colour before another', '8;5;1mred\x1b[0mnext', '\x1b[0mnext'],
  ['the rest of a title that a bell ends', '0;my title\x07$ ls', '$ ls'],
  ['the rest of a title that ST ends', '0;my title\x1b\\$ ls', '$ ls'],
  ['the second half of ST', '\\$ ls\r\nfile', '\nfile'],
  ['a picture with line breaks in it', 'q"1;1\n#0~~\n-\x1b\\$ ls', '$ ls'],
  ['the rest of a charset', '(Btext\x1b[1mbold', '\x1b[1mbold'],
  ['text without any place', 'text and text', undefined],
  ['an ESC whose meaning is not there yet', 'text\x1b', undefined],
  ['nothing', '', undefined],
];
test.each(cases)('behind %s', (_what, rest, shown) => {
  expect(startOf(rest)).toBe(shown);
});

test('the rest of a character is left out', () => {
  const bytes = bytesOf('é😀x');
  expect([...Array(bytes.byteLength + 1).keys()].map((at) => at + characterStart(bytes.subarray(at)))).toEqual([
    0, 2, 2, 6, 6, 6, 6, 7,
  ]);
});

/** Positions at which a terminal is in no sequence, no string and no character. */
function restingPlaces(bytes: Uint8Array): Set<number> {
  const places = new Set<number>();
  let state: 'ground' | 'escape' | 'intermediate' | 'csi' | 'string' | 'string escape' = 'ground';
  for (let at = 0; at <= bytes.byteLength; at++) {
    const byte = bytes[at] ?? 0;
    if (state === 'ground' && (byte & 0xc0) !== 0x80) places.add(at);
    if (state === 'ground' && byte === 0x1b) state = 'escape';
    else if (state === 'escape') {
      if (byte === 0x5b) state = 'csi';
      else if ([0x5d, 0x50, 0x5f].includes(byte)) state = 'string';
      else state = byte >= 0x20 && byte <= 0x2f ? 'intermediate' : 'ground';
    } else if (state === 'intermediate' || (state === 'csi' && byte >= 0x40)) state = 'ground';
    else if (state === 'string' && byte === 0x07) state = 'ground';
    else if (state === 'string' && byte === 0x1b) state = 'string escape';
    else if (state === 'string escape') state = 'ground';
  }
  return places;
}

const word = fc.string({
  unit: fc.constantFrom('a', 'Z', '7', ';', ' ', '[', '\\', 'm', 'é', '😀', '漢'),
  maxLength: 12,
});
const payload = fc.string({ unit: fc.constantFrom('a', '0', ';', '#', '\n', '\r', 'é'), maxLength: 30 });
const token = fc.oneof(
  word,
  fc.constantFrom('\n', '\r\n', '\x07', '\x1b(B', '\x1b7', '\x1b=', '\x1b[2J'),
  fc.array(fc.nat(255), { maxLength: 4 }).map((numbers) => `\x1b[${numbers.join(';')}m`),
  payload.map((text) => `\x1b]0;${text}\x07`),
  payload.map((text) => `\x1b]8;;${text}\x1b\\`),
  payload.map((text) => `\x1bPq${text}\x1b\\`),
);

test('wherever output is cut, what is shown of it begins at rest', () => {
  let found = 0;
  fc.assert(
    fc.property(fc.array(token, { minLength: 1, maxLength: 30 }), fc.nat(), (tokens, where) => {
      const bytes = bytesOf(tokens.join(''));
      const cut = where % (bytes.byteLength + 1);
      const start = safeStart(bytes.subarray(cut));
      if (start === undefined) return;
      found++;
      expect(restingPlaces(bytes)).toContain(cut + start);
    }),
    { numRuns: 3_000 },
  );
  expect(found).toBeGreaterThan(1_000);
});
