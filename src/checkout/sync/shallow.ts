/** The commits at which a shallow clone ends. The sandbox's repositories end there too. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Checkout, refused } from './checkout.ts';

const boundaryLimit = 2_000;

export async function shallowBoundaries(checkout: Checkout): Promise<string | undefined> {
  if (!checkout.isShallow) return undefined;
  const lines = (await readFile(join(checkout.shadow, 'shallow'), 'utf8')).split('\n').filter((line) => line !== '');
  if (lines.length > boundaryLimit) {
    throw refused('The clone is shallow in too many places. Deepen it (`git fetch --unshallow`), or make a new one.');
  }
  return lines.join(' ');
}
