/** Bytes to base64 and back, with what the platform has: a method of Uint8Array where it is new, `atob` elsewhere. */

interface NewerUint8Array {
  fromBase64?(text: string): Uint8Array<ArrayBuffer>;
}

/** Arguments of one call; more overflow the stack. */
const chunkLength = 8_192;

export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  if (text === '') return new Uint8Array(0);
  const newer = Uint8Array as unknown as NewerUint8Array;
  if (newer.fromBase64 !== undefined) return newer.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export function encodeBase64(bytes: Uint8Array): string {
  const newer = bytes as unknown as { toBase64?(): string };
  if (newer.toBase64 !== undefined) return newer.toBase64();
  let binary = '';
  for (let i = 0; i < bytes.length; i += chunkLength) {
    binary += String.fromCharCode(...bytes.subarray(i, i + chunkLength));
  }
  return btoa(binary);
}
