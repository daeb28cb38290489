/** Journals as init writes them, for tests. */
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function journalRecord(kind: number, payload: string | Uint8Array, bootMs = 0): Buffer {
  const bytes = Buffer.from(payload as string);
  const header = Buffer.alloc(13);
  header.writeUInt32LE(bytes.byteLength, 0);
  header.writeUInt8(kind, 4);
  header.writeBigUInt64LE(BigInt(bootMs), 5);
  return Buffer.concat([header, bytes]);
}

export function segmentName(offset: number): string {
  return offset.toString(16).padStart(16, '0');
}

/** A directory with these segments, each behind the one before it. */
export async function writeJournal(segments: readonly Uint8Array[], first = 0): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-journal-'));
  let offset = first;
  for (const segment of segments) {
    await writeFile(join(directory, segmentName(offset)), segment);
    offset += segment.byteLength;
  }
  return directory;
}
