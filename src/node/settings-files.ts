/**
 * Writes settings into the slots of their sandboxes. Files stay open for the next change, because opening one takes several times as
 * long as the write. Callers hold the sandbox's lock.
 *
 * What is written is in the kernel's hands, not on the disk: it outlives this process, and need not outlive the machine, because the
 * life that it is about does not either. After a loss of power the slots are old, torn or gone; they are then of a life that has
 * ended, and the next one begins with the settings of its order.
 *
 * Invariants:
 *  - A write never goes to the slot that holds what counts: it is found when a file is opened, and known since.
 *  - A file is in #idle only while nobody uses it, and at most `idleMax` are.
 *  - After `close` none is idle and none becomes so.
 */
import { writeSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type AppliedSettings,
  findSlot,
  parseSlots,
  slotBytes,
  slotCount,
  slotsFileBytes,
  slotsFileName,
} from './settings-slots.ts';

const idleMax = 64;

export class SettingsFiles {
  /** By directory; the one used longest ago comes first. */
  readonly #idle = new Map<string, SettingsFile>();
  #isClosed = false;

  /** `undefined` where a sandbox has no slots. Who takes it gives it back. */
  async take(directory: string, current: AppliedSettings): Promise<SettingsFile | undefined> {
    const idle = this.#idle.get(directory);
    this.#idle.delete(directory);
    return idle ?? (await SettingsFile.open(directory, current));
  }

  async giveBack(directory: string, file: SettingsFile): Promise<void> {
    if (this.#isClosed) return await file.close();
    this.#idle.set(directory, file);
    const [oldest] = this.#idle.keys();
    if (this.#idle.size > idleMax && oldest !== undefined) await this.forget(oldest);
  }

  /** The sandbox is gone, or will not be changed soon. */
  async forget(directory: string): Promise<void> {
    const idle = this.#idle.get(directory);
    this.#idle.delete(directory);
    await idle?.close();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#idle.keys()].map((directory) => this.forget(directory)));
  }

  get idle(): number {
    return this.#idle.size;
  }
}

export class SettingsFile {
  readonly #file: FileHandle;
  /** The slot that holds what counts; `undefined` when the record itself does. */
  #current: number | undefined;
  /** The same before the last write. */
  #previous: number | undefined;

  private constructor(file: FileHandle, current: number | undefined) {
    this.#file = file;
    this.#current = current;
    this.#previous = current;
  }

  static async open(directory: string, current: AppliedSettings): Promise<SettingsFile | undefined> {
    const file = await open(join(directory, slotsFileName), 'r+').catch(ignoreAbsent);
    if (file === undefined) return undefined;
    try {
      const bytes = Buffer.alloc(slotsFileBytes);
      await file.read(bytes, 0, slotsFileBytes, 0);
      return new SettingsFile(file, findSlot(parseSlots(bytes), current));
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  /** Outlives this process when it returns. When it fails, it may be there or not until it is taken back or written again. */
  write(slot: Buffer): void {
    this.#previous = this.#current;
    this.#put(this.#next(), slot);
    this.#current = this.#next();
  }

  /** What counted before the last write, whether that one succeeded or not, counts again. */
  takeBack(): void {
    this.#current = this.#previous;
    this.#put(this.#next(), Buffer.alloc(slotBytes));
  }

  #next(): number {
    return this.#current === undefined ? 0 : (this.#current + 1) % slotCount;
  }

  /** It blocks for as long as the kernel takes to copy a block, which is less than a trip to another thread. */
  #put(index: number, slot: Buffer): void {
    const bytesWritten = writeSync(this.#file.fd, slot, 0, slotBytes, index * slotBytes);
    if (bytesWritten !== slotBytes) throw new Error(`Only ${bytesWritten} bytes of a slot could be written.`);
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

function ignoreAbsent(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
