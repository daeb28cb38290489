/**
 * What E2B knows of a sandbox and Atoll does not, kept in two keys of its metadata, which clients of E2B neither see nor set. A sandbox that was made in
 * another way has none, and is served as a private one.
 */
import { z } from 'zod';
import { E2bError } from './e2b-error.ts';

const reservedPrefix = 'atoll.e2b.';
const settingsKey = `${reservedPrefix}settings`;
export const onTimeoutKey = `${reservedPrefix}onTimeout`;

const marks = z.object({
  /** As the client named it. */
  template: z.string(),
  /** Every port may be visited without a token. */
  isPublic: z.boolean(),
  /** What services hear as their host, with `${PORT}` for the port; null: the name that a visitor used. */
  requestHost: z.string().nullable(),
});
export type SandboxMarks = z.output<typeof marks>;

type Metadata = Readonly<Record<string, string>>;

/** The metadata that a new sandbox gets. */
export function withMarks(
  metadata: Metadata,
  settings: SandboxMarks,
  onTimeout: 'kill' | 'pause',
): Record<string, string> {
  refuseReserved(metadata);
  return { ...metadata, [settingsKey]: JSON.stringify(settings), [onTimeoutKey]: onTimeout };
}

export function refuseReserved(metadata: Readonly<Record<string, unknown>>): void {
  const key = Object.keys(metadata).find((name) => name.startsWith(reservedPrefix));
  if (key !== undefined)
    throw new E2bError(400, `Metadata keys that begin with "${reservedPrefix}" are the server's own.`);
}

export function marksOf(metadata: Metadata): SandboxMarks | undefined {
  const text = metadata[settingsKey];
  if (text === undefined) return undefined;
  try {
    return marks.parse(JSON.parse(text));
  } catch {
    // Somebody wrote over it through the other API: it counts as not marked.
    return undefined;
  }
}

/** As clients of E2B see it. */
export function withoutMarks(metadata: Metadata): Metadata {
  return Object.fromEntries(Object.entries(metadata).filter(([name]) => !name.startsWith(reservedPrefix)));
}
