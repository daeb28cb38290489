/**
 * Makes a copy of any value that is safe to log: plain JSON data, bounded in size, without what is secret by its name or
 * its look. Errors keep their name, message, code, stack and cause.
 */
const removed = '[redacted]';
const depthMax = 8;
const entriesMax = 200;
const valuesMax = 1000;
const textMax = 16 * 1024;

/** Names of fields whose texts are secret, alone or as the last word: `token`, `accessToken`, `x-api-key`. */
const secretName = /(^|[-_]|(?<=[a-z0-9])(?=[A-Z]))(token|secret|authorization|password|cookie)$|^key$|api[-_]?key$/i;
/** Keys of this platform, wherever they stand in a text. */
const keyText = /\b(atoll|e2b)_[A-Za-z0-9]{8,}/g;

export function redact(value: unknown): unknown {
  return copy(value, { depth: 0, parents: new Set(), budget: { values: valuesMax } });
}

interface Place {
  readonly depth: number;
  readonly parents: ReadonlySet<object>;
  /** How many more values the whole copy may hold; shared by all its places. */
  readonly budget: { values: number };
}

function copy(value: unknown, place: Place): unknown {
  if (place.budget.values-- <= 0) return '[more]';
  if (typeof value === 'string') return redactText(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'function' || typeof value === 'symbol') return `[${typeof value}]`;
  if (typeof value !== 'object' || value === null) return value;
  if (place.parents.has(value)) return '[circular]';
  if (place.depth >= depthMax) return '[deeper]';
  try {
    return copyObject(value, place);
  } catch (error) {
    return `[unloggable: ${error instanceof Error ? redactText(error.message) : typeof error}]`; // A getter threw.
  }
}

function copyObject(value: object, place: Place): unknown {
  const inside = { ...place, depth: place.depth + 1, parents: new Set(place.parents).add(value) };
  if (value instanceof Error) return copyEntries(errorEntries(value), inside);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? '[invalid date]' : value.toISOString();
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (Array.isArray(value)) return value.slice(0, entriesMax).map((item) => copy(item, inside));
  if (value instanceof Set) return copy([...value], inside);
  if (value instanceof Map)
    return copyEntries(
      [...value].map(([name, item]) => [String(name), item]),
      inside,
    );
  return copyEntries(Object.entries(value), inside);
}

function copyEntries(entries: readonly (readonly [string, unknown])[], place: Place): Record<string, unknown> {
  const copies = entries.slice(0, entriesMax).map(([name, value]) => [redactText(name), copyField(name, value, place)]);
  return Object.fromEntries(copies);
}

/** Numbers stay: a lease token counts, it opens nothing. Of an environment the names stay. */
function copyField(name: string, value: unknown, place: Place): unknown {
  if (/^env(ironment)?$/i.test(name)) return redactEnvironment(value);
  if (!secretName.test(name) || value === null || value === undefined) return copy(value, place);
  return typeof value === 'number' || typeof value === 'boolean' ? value : removed;
}

function redactEnvironment(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value == null ? value : removed;
  return Object.fromEntries(
    Object.keys(value)
      .slice(0, entriesMax)
      .map((name) => [redactText(name), removed]),
  );
}

function errorEntries(error: Error): [string, unknown][] {
  const { name, message, stack, cause } = error;
  const entries: [string, unknown][] = [
    ['name', name],
    ['message', message],
  ];
  for (const extra of ['code', 'details'] as const) {
    if (extra in error) entries.push([extra, (error as unknown as Record<string, unknown>)[extra]]);
  }
  entries.push(['stack', stack]);
  if (cause !== undefined) entries.push(['cause', cause]);
  return entries;
}

function redactText(text: string): string {
  const safe = text.replace(keyText, (_, prefix: string) => `${prefix}_${removed}`);
  return safe.length <= textMax ? safe : `${safe.slice(0, textMax)}… (${safe.length} characters)`;
}
