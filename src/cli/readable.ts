/** Times, sizes and tables as people read them. */

const steps = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** The two largest units: `3d 4h`, `5m 10s`, `12s`, `0s`. */
export function readableSpan(ms: number): string {
  let left = Math.max(0, ms);
  const parts: string[] = [];
  for (const [unit, size] of steps) {
    const count = Math.floor(left / size);
    if (count > 0 || (unit === 's' && parts.length === 0)) parts.push(`${count}${unit}`);
    else if (parts.length > 0) break;
    left -= count * size;
    if (parts.length === 2) break;
  }
  return parts.join(' ');
}

/** `5m 10s ago`, `in 2h`, `now`. */
export function readableWhen(at: string | null, nowMs: number): string {
  if (at === null) return 'never';
  const distanceMs = Date.parse(at) - nowMs;
  if (Math.abs(distanceMs) < 1_000) return 'now';
  return distanceMs < 0 ? `${readableSpan(-distanceMs)} ago` : `in ${readableSpan(distanceMs)}`;
}

export function readableBytes(bytes: number): string {
  for (const [unit, size] of [
    ['GiB', 1024 ** 3],
    ['MiB', 1024 ** 2],
    ['KiB', 1024],
  ] as const) {
    if (bytes >= size) return `${Math.round((bytes / size) * 10) / 10} ${unit}`;
  }
  return `${bytes} B`;
}

/** Columns as wide as they must be, two spaces apart. */
export function readableTable(heads: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = [heads, ...rows].map((row) => row.map(printable));
  const widths = heads.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  return cells
    .map(
      (row) =>
        `${row
          .map((cell, i) => cell.padEnd(widths[i] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

/** One `name: value` per line, aligned. */
export function readableFields(fields: readonly (readonly [name: string, value: string])[]): string {
  const width = Math.max(...fields.map(([name]) => name.length)) + 1;
  return fields.map(([name, value]) => `${`${name}:`.padEnd(width)} ${printable(value)}\n`).join('');
}

export function readablePairs(pairs: Readonly<Record<string, string>>): string {
  const texts = Object.entries(pairs).map(([name, value]) => `${name}=${value}`);
  return texts.length === 0 ? '-' : texts.join(' ');
}

/** Metadata and names come from others: nothing of them reaches the terminal as a control character. */
export function printable(text: string): string {
  return text.replaceAll(/[\x00-\x1f\x7f-\x9f]/g, '\u{fffd}');
}
