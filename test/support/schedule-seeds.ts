/**
 * The seeds of random schedules: new ones every time, or the one that ATOLL_SEED names, to see a failing run again.
 * ATOLL_SCHEDULES sets how many.
 */
export function scheduleSeeds(options: { readonly count: number }): number[] {
  const given = process.env['ATOLL_SEED'];
  if (given !== undefined) return [Number(given)];
  const first = crypto.getRandomValues(new Uint32Array(1))[0]! % 1_000_000_000;
  return Array.from({ length: Number(process.env['ATOLL_SCHEDULES'] ?? options.count) }, (_, index) => first + index);
}
