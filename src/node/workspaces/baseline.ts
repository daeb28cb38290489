/**
 * How the files of a checkout looked when they were those of a version: what still looks so has not been changed, for nobody inside can set the
 * time of a change. Losing one costs reading, never an answer.
 */
import { createHash } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { prepareFile } from '../../base/index.ts';
import type { CheckoutEntry } from './checkout-files.ts';

const formatVersion = 1;
const format = z.strictObject({
  version: z.literal(formatVersion),
  base: z.string(),
  looks: z.array(z.tuple([z.string(), z.string()])),
});

export class Baseline {
  static readonly none = new Baseline('', new Map());
  readonly #base: string;
  /** By path. */
  readonly #looks: ReadonlyMap<string, string>;

  private constructor(base: string, looks: ReadonlyMap<string, string>) {
    this.#base = base;
    this.#looks = looks;
  }

  static of(base: string, entries: readonly CheckoutEntry[]): Baseline {
    return new Baseline(base, new Map(entries.map((entry) => [entry.path, lookOf(entry)])));
  }

  /** One of another version, one that is damaged or of another time of this software, and none at all are the same. */
  static async load(directory: string, name: string, base: string): Promise<Baseline> {
    const text = await readFile(fileOf(directory, name), 'utf8').catch(() => '');
    try {
      const kept = format.parse(JSON.parse(text));
      return kept.base === base ? new Baseline(base, new Map(kept.looks)) : Baseline.none;
    } catch {
      return Baseline.none;
    }
  }

  static async forget(directory: string, name: string): Promise<void> {
    await rm(fileOf(directory, name), { force: true });
  }

  has(entry: CheckoutEntry): boolean {
    return this.#looks.get(entry.path) === lookOf(entry);
  }

  async save(directory: string, name: string): Promise<void> {
    const content = JSON.stringify({ version: formatVersion, base: this.#base, looks: [...this.#looks] });
    const file = await prepareFile(fileOf(directory, name), content, { mode: 0o600, durable: false });
    await file.commit();
  }
}

function lookOf({ type, mode, sizeBytes, modifiedNs, changedNs, inode }: CheckoutEntry): string {
  return [type, mode, sizeBytes, modifiedNs, changedNs, inode].join(' ');
}

/** A name is the caller's; a file's name is ours. */
function fileOf(directory: string, name: string): string {
  return join(directory, `${createHash('sha256').update(name).digest('hex')}.json`);
}
