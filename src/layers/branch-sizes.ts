/**
 * What layers and writable layers refer to, where the file system charges whoever wrote something as long as anything refers to it, and
 * not whoever refers to it.
 *
 *   a writable layer refers to  <=  what it is charged with  +  what is foreign to it
 *
 * Foreign is what a branch began with and still has. It only becomes less: nothing that others wrote gets into a writable layer later.
 *
 * Invariants:
 *  - #foreign is never less than what is true, so a limit on the charges that is set by it is never passed. Near a limit it is counted again,
 *    because removing what is foreign makes room.
 *  - What is said of a layer is counted, or at most an eighth of it was charged since something was counted.
 */
import { type Clock, KeyedMutex, type Logger } from '../base/index.ts';
import type { LayerId, WritableId } from '../protocol/index.ts';
import type { WriterCharges } from './layer-driver.ts';
import type { WritableRecord } from './layer-manifest.ts';
import { dataOf, type LayerPaths } from './layer-paths.ts';
import type { Usage } from './layer-store.ts';

/** A size may be off by one part in so many, by what was charged since the last count. */
const share = 8;
/** Limits looked at in one round of maintenance. */
const looksMax = 64;
const lookAgainMs = 5_000;
const lookAgainMaxMs = 60_000;

interface Limited {
  readonly limitBytes: number;
  readonly nextLookMs: number;
  readonly pauseMs: number;
  /** As the last look has found it. */
  readonly changedIn: number | undefined;
}

/** A size that was counted, and the charges at that time. */
interface Counted {
  readonly bytes: number;
  readonly chargedBytes: number;
}

export interface BranchSizesOptions {
  readonly charges: WriterCharges;
  readonly paths: LayerPaths;
  readonly clock: Clock;
  readonly log: Logger;
  /** The writable layers that are there. */
  readonly find: (id: WritableId) => WritableRecord | undefined;
}

export class BranchSizes {
  readonly #options: BranchSizesOptions;
  readonly #layers = new Map<LayerId, number>();
  readonly #foreign = new Map<WritableId, number>();
  readonly #counted = new Map<WritableId, Counted>();
  readonly #limited = new Map<WritableId, Limited>();
  /** Guards the limit of one writable layer: what is remembered is what is set. Rank 6. */
  readonly #limitLock = new KeyedMutex<WritableId>();
  readonly #counting = new Map<WritableId, Promise<void>>();

  constructor(options: BranchSizesOptions) {
    this.#options = options;
  }

  /** What a branch of the layer begins with; exact when a limit leaves little more than that. */
  async foreignOf(layer: LayerId, limitBytes: number | undefined): Promise<number> {
    const bytes = await this.ofLayer(layer);
    return limitBytes !== undefined && isNear(bytes, limitBytes) ? await this.#count(layer) : bytes;
  }

  async ofLayer(id: LayerId): Promise<number> {
    return this.#layers.get(id) ?? (await this.#count(id));
  }

  async ofWritable(record: WritableRecord): Promise<Usage> {
    const charged = await this.#options.charges.charged(this.#pathOf(record), { isFixed: false });
    const { limitBytes } = this.#limited.get(record.id) ?? {};
    const limit = limitBytes ?? (charged.limitBytes === 0 ? undefined : charged.limitBytes + this.#foreignIn(record));
    return { bytes: this.#estimate(record, charged.bytes), exclusiveBytes: undefined, limitBytes: limit };
  }

  /** `chargedBytes` is what the writable layer was charged with when the layer was made of it. */
  frozen(record: WritableRecord, layer: LayerId, chargedBytes: number): void {
    const bytes = this.#estimate(record, chargedBytes);
    this.#layers.set(layer, bytes);
    const counted = this.#counted.get(record.id) ?? { bytes: this.#foreignIn(record), chargedBytes: 0 };
    if (Math.abs(chargedBytes - counted.chargedBytes) * share <= counted.bytes) return;
    if (this.#counting.has(record.id)) return;
    const counting = this.#countFrozen(record.id, layer, chargedBytes).finally(() => this.#counting.delete(record.id));
    this.#counting.set(record.id, counting);
  }

  async setLimit(record: WritableRecord, limitBytes: number): Promise<void> {
    await this.#limitLock.run(record.id, async () => {
      const nextLookMs = this.#options.clock.bootMs() + lookAgainMs;
      await this.#apply(record, limitBytes);
      this.#limited.set(record.id, { limitBytes, nextLookMs, pauseMs: lookAgainMs, changedIn: undefined });
    });
  }

  /** Counts again what is foreign to those that are near their limit. */
  async maintain(): Promise<void> {
    const nowMs = this.#options.clock.bootMs();
    const due = [...this.#limited].filter(([, { nextLookMs }]) => nextLookMs <= nowMs).slice(0, looksMax);
    for (const [id, limited] of due) {
      const record = this.#options.find(id);
      if (record === undefined) continue;
      const { changedIn, hasMoreRoom } = await this.#look(record, limited);
      const pauseMs = hasMoreRoom ? lookAgainMs : Math.min(limited.pauseMs * 2, lookAgainMaxMs);
      const known = this.#limited.get(id);
      if (known !== undefined) this.#limited.set(id, { ...known, changedIn, pauseMs, nextLookMs: nowMs + pauseMs });
    }
  }

  forgetLayer(id: LayerId): void {
    this.#layers.delete(id);
  }

  forgetWritable(id: WritableId): void {
    this.#foreign.delete(id);
    this.#counted.delete(id);
    this.#limited.delete(id);
  }

  /** Waits for what is being counted. */
  async idle(): Promise<void> {
    await Promise.all(this.#counting.values());
  }

  async #look(
    record: WritableRecord,
    limited: Limited,
  ): Promise<{ readonly changedIn: number | undefined; readonly hasMoreRoom: boolean }> {
    const { charges, paths } = this.#options;
    const before = this.#foreignIn(record);
    const { bytes, changedIn } = await charges.charged(this.#pathOf(record), { isFixed: true });
    const isCounted = before === 0 || changedIn === limited.changedIn || !isNear(bytes + before, limited.limitBytes);
    if (isCounted) return { changedIn: limited.changedIn, hasMoreRoom: false };
    const foreign = Math.min(before, await charges.older(this.#pathOf(record), paths.unfinished(record.id)));
    if (foreign === before) return { changedIn, hasMoreRoom: false };
    await this.#limitLock.run(record.id, async () => {
      this.#foreign.set(record.id, foreign);
      await this.#apply(record, this.#limited.get(record.id)?.limitBytes ?? limited.limitBytes);
    });
    return { changedIn, hasMoreRoom: true };
  }

  /** Behind the answer of whoever made the layer, which may be removed meanwhile, as what it was made of. */
  async #countFrozen(writable: WritableId, layer: LayerId, chargedBytes: number): Promise<void> {
    try {
      const bytes = await this.#referredBy(layer);
      if (this.#layers.has(layer)) this.#layers.set(layer, bytes);
      if (this.#options.find(writable) !== undefined) this.#counted.set(writable, { bytes, chargedBytes });
    } catch (error) {
      if (this.#layers.has(layer)) this.#options.log.warn('The size of a layer cannot be counted.', { layer, error });
    }
  }

  /** One byte is the least that the file system takes for a limit. */
  async #apply(record: WritableRecord, limitBytes: number): Promise<void> {
    const chargeable = Math.max(limitBytes - this.#foreignIn(record), 1);
    await this.#options.charges.limit(this.#pathOf(record), chargeable);
  }

  #estimate(record: WritableRecord, chargedBytes: number): number {
    const counted = this.#counted.get(record.id) ?? { bytes: this.#foreignIn(record), chargedBytes: 0 };
    return Math.max(counted.bytes + chargedBytes - counted.chargedBytes, 0);
  }

  #foreignIn(record: WritableRecord): number {
    return this.#foreign.get(record.id) ?? record.foreignBytes ?? 0;
  }

  async #count(layer: LayerId): Promise<number> {
    const bytes = await this.#referredBy(layer);
    this.#layers.set(layer, bytes);
    return bytes;
  }

  #referredBy(layer: LayerId): Promise<number> {
    return this.#options.charges.referred(dataOf(this.#options.paths.layer(layer)));
  }

  #pathOf({ id }: WritableRecord): string {
    return dataOf(this.#options.paths.writable(id));
  }
}

/** Whether it matters that there may be more room than is known. */
function isNear(bytes: number, limitBytes: number): boolean {
  return bytes > limitBytes / 2;
}
