/**
 * Where a terminal may begin to be shown when what came before is gone: not within an escape sequence, a string of one, or a character.
 *
 * What the first byte belongs to is unknown, so it is looked for a place where every state ends:
 *
 *   ESC                begins anew whatever was open, unless it is the end of a string (ESC \), which is a place itself
 *   BEL                ends a string, or rings
 *   line feed, return  are in no sequence; a string may hold them, but then its end comes before the next sequence begins
 */
const escapeByte = 0x1b;
const bell = 0x07;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const backslash = 0x5c;

/** `undefined`: no such place in these bytes. */
export function safeStart(bytes: Uint8Array): number | undefined {
  const escapeAt = bytes.indexOf(escapeByte);
  if (escapeAt !== -1 && bytes[escapeAt + 1] === backslash) return escapeAt + 2;
  const before = escapeAt === -1 ? bytes : bytes.subarray(0, escapeAt);
  const bellAt = before.lastIndexOf(bell);
  if (bellAt !== -1) return bellAt + 1;
  const breakAt = before.findIndex((byte) => byte === lineFeed || byte === carriageReturn);
  if (breakAt !== -1) return breakAt + 1;
  // The last byte may be the first half of an end.
  return escapeAt === -1 || escapeAt === bytes.byteLength - 1 ? undefined : escapeAt;
}

/** Behind what is left of a character that begins before these bytes: for when there is no better place. */
export function characterStart(bytes: Uint8Array): number {
  const at = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
  return at === -1 ? bytes.byteLength : at;
}
