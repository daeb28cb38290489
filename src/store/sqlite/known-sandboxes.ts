/**
 * Records of sandboxes as they are committed, remembered because every command asks for one.
 *
 * Invariant: what is known is what is committed. A record is forgotten before it is written, and learnt again only when what wrote it is
 * committed or undone, from a read of the state that is the latest in that turn.
 */
import type { SandboxId } from '../../protocol/index.ts';
import type { SandboxRecord } from '../store.ts';

/** About 2 KB each. Beyond it all are forgotten, and those that are used are soon known again. */
const knownMax = 10_000;

export class KnownSandboxes {
  readonly #records = new Map<SandboxId, SandboxRecord>();
  /** Written by the batch that runs. */
  readonly #changing = new Set<SandboxId>();

  get(id: SandboxId): SandboxRecord | undefined {
    return this.#records.get(id);
  }

  learn(record: SandboxRecord): void {
    if (this.#changing.has(record.id)) return;
    if (this.#records.size >= knownMax) this.#records.clear();
    this.#records.set(record.id, record);
  }

  /** It is about to be written. */
  changes(id: SandboxId): void {
    this.#records.delete(id);
    this.#changing.add(id);
  }

  /** What was written is committed or undone. */
  settled(): void {
    this.#changing.clear();
  }
}
