/**
 * Measures variants side by side: each round visits every variant once, so that whatever else the machine does hits all of them
 * alike. The order turns by one each round, so that none always follows the same neighbour.
 */

/** One measurement; whatever it returns is what is collected, usually milliseconds. */
export type Variant<Sample> = (round: number) => Promise<Sample>;

export async function interleave<Name extends string, Sample = number>(
  variants: Readonly<Record<Name, Variant<Sample>>>,
  options: { readonly rounds: number; readonly warmups: number },
): Promise<Record<Name, Sample[]>> {
  const names = Object.keys(variants) as Name[];
  const samples = Object.fromEntries(names.map((name) => [name, [] as Sample[]])) as Record<Name, Sample[]>;
  for (let round = -options.warmups; round < options.rounds; round++) {
    const turn = (round + options.warmups) % names.length;
    for (const name of [...names.slice(turn), ...names.slice(0, turn)]) {
      const sample = await variants[name](round);
      if (round >= 0) samples[name].push(sample);
    }
  }
  return samples;
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

/** Runs `work` for each item, a bounded number at a time. */
export async function forEachAtOnce<Item>(
  items: Iterable<Item>,
  atOnce: number,
  work: (item: Item) => Promise<unknown>,
): Promise<void> {
  // One iterator for all: each takes the next that nobody has taken.
  const left = items[Symbol.iterator]();
  const worker = async () => {
    for (let next = left.next(); !next.done; next = left.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}
