/** What metadata may be, and how a patch is merged. Pure. */
import { metadataLimits, PlatformError } from '../protocol/index.ts';

export type Metadata = Readonly<Record<string, string>>;
export type MetadataPatch = Readonly<Record<string, string | null>>;

export interface Merge {
  readonly metadata: Metadata;
  /** Empty: nothing changes, not even the version. */
  readonly changes: MetadataPatch;
}

/** A text sets, null or "" removes, absent keys stay. */
export function mergeMetadata(current: Metadata, patch: MetadataPatch): Merge {
  const merged = new Map(Object.entries(current));
  const changes = new Map<string, string | null>();
  for (const [key, value] of Object.entries(patch)) {
    const wanted = value === '' ? null : value;
    if ((merged.get(key) ?? null) === wanted) continue;
    changes.set(key, wanted);
    if (wanted === null) merged.delete(key);
    else merged.set(key, wanted);
  }
  const metadata = plain(merged);
  checkMetadata(metadata);
  return { metadata, changes: plain(changes) };
}

export function dropEmpty(metadata: Metadata): Metadata {
  return plain(new Map(Object.entries(metadata).filter(([, value]) => value !== '')));
}

/** Keys such as "__proto__" are data like any other. */
function plain<Value>(entries: Map<string, Value>): Record<string, Value> {
  return Object.fromEntries(entries);
}

export function checkMetadata(metadata: Metadata): void {
  const entries = Object.entries(metadata);
  if (entries.length > metadataLimits.keys) {
    throw tooMuch('keys', `Metadata has at most ${metadataLimits.keys} keys; this would be ${entries.length}.`);
  }
  let totalBytes = 0;
  for (const [key, value] of entries) totalBytes += Buffer.byteLength(key) + Buffer.byteLength(value);
  if (totalBytes > metadataLimits.totalBytes) {
    throw tooMuch(
      'totalBytes',
      `Metadata has at most ${metadataLimits.totalBytes} bytes; this would be ${totalBytes}.`,
    );
  }
}

/** Refuses unless each key has the value that the caller expects; null: is absent. */
export function checkExpected(current: Metadata, expected: MetadataPatch): void {
  for (const [key, value] of Object.entries(expected)) {
    const has = Object.hasOwn(current, key) ? (current[key] ?? null) : null;
    if (has === value) continue;
    const details = { key, value: has };
    throw new PlatformError('version_mismatch', `Metadata "${key}" does not have the expected value.`, { details });
  }
}

function tooMuch(limit: keyof typeof metadataLimits, message: string): PlatformError {
  return new PlatformError('invalid_request', message, { details: { limit, maximum: metadataLimits[limit] } });
}
