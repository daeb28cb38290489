/** Samples and what is said of them. Medians and the 99th percentile: a mean hides what a caller feels. */

export interface Summary {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly count: number;
}

export function summarize(samples: readonly number[]): Summary {
  const sorted = samples.toSorted((a, b) => a - b);
  return { p50: rank(sorted, 0.5), p99: rank(sorted, 0.99), max: sorted.at(-1) ?? Number.NaN, count: sorted.length };
}

export function median(samples: readonly number[]): number {
  return summarize(samples).p50;
}

/** The nearest rank: always a value that was measured. */
function rank(sorted: readonly number[], share: number): number {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}
