/** Entries of a tar in the plainest format: names up to 100 bytes, sizes up to 8 GiB, owned by root. For what the platform itself puts into one. */
const blockBytes = 512;

export interface PlainEntry {
  readonly name: string;
  readonly type: 'file' | 'directory';
  readonly mode: number;
  readonly sizeBytes: number;
  readonly modifiedAtSeconds: number;
}

export function tarHeader(entry: PlainEntry): Buffer {
  const header = Buffer.alloc(blockBytes);
  const octal = (value: number, at: number, size: number) =>
    header.write(`${value.toString(8).padStart(size - 1, '0')}\0`, at, size, 'latin1');
  header.write(entry.type === 'directory' ? `${entry.name}/` : entry.name, 0, 100, 'latin1');
  octal(entry.mode, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(entry.sizeBytes, 124, 12);
  octal(Math.max(0, entry.modifiedAtSeconds), 136, 12);
  header.write(entry.type === 'directory' ? '5' : '0', 156, 1, 'latin1');
  header.write('ustar\0', 257, 6, 'latin1');
  header.write('00', 263, 2, 'latin1');
  header.fill(0x20, 148, 156);
  octal(
    header.reduce((sum, byte) => sum + byte, 0),
    148,
    7,
  );
  return header;
}

export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((blockBytes - (sizeBytes % blockBytes)) % blockBytes);
}
