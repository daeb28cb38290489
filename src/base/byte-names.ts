/** Names of files as git has them: bytes. As text each byte is one character of latin1, which keeps every one of them. */

/** Splits what `-z` separates. */
export function zeroSeparated(bytes: Buffer): string[] {
  const parts = bytes.toString('latin1').split('\0');
  parts.pop();
  return parts;
}

export function nameBytes(name: string): Buffer {
  return Buffer.from(name, 'latin1');
}

/** A name as people read it. */
export function nameText(name: string): string {
  return nameBytes(name).toString('utf8');
}

/** Characters that HFS+ leaves out when it compares names. */
const ignoredCharacters = /[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]/g;

/** Whether a part of a path, as text, is `.git` on some system that may have to write it. */
export function isGitName(part: string): boolean {
  const folded = part.replaceAll(ignoredCharacters, '').toLowerCase();
  // NTFS cuts trailing dots and spaces, reads what follows a colon as a stream, and knows .git as git~1. A backslash separates there.
  const pieces = folded.split('\\').map((piece) => piece.replace(/:.*$/s, '').replace(/[. ]+$/, ''));
  return pieces.some((piece) => piece === '.git' || piece === 'git~1');
}
