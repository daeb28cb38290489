/**
 * Small files of one directory that outlive the program and need not outlive a loss of power: a name leads to a whole file, as it was or as
 * it is, at whatever instant the program dies.
 *
 * To make a file takes a file system up to a hundred times as long as to write one, so the next one is made ahead, empty and under a name of
 * its own; it gets its name when it has its content. What is there already is written over in place, which is whole too: what lies within
 * one page the kernel copies in one step. Everything but making one ahead blocks, for less time than a trip to another thread takes.
 */
import { closeSync, fstatSync, openSync, renameSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { writeSmallFile } from './durable-file.ts';

/** Of every kernel there is a page as long as this, or longer. */
const pageBytes = 4096;
/** Not a name that `write` is given: those begin with a letter. */
const spareName = '.spare';
const blank = 0x20;

export class SmallFiles {
  readonly #directory: string;
  readonly #mode: number;
  #spare: 'none' | 'ready' | Promise<void> = 'none';

  /** What an earlier program left of the one made ahead is in nobody's way. */
  constructor(directory: string, options: { readonly mode: number }) {
    this.#directory = directory;
    this.#mode = options.mode;
  }

  /** `content` is one that blanks behind it do not change. One at a time for each name. */
  write(name: string, content: string): void {
    if (!writeOver(join(this.#directory, name), Buffer.from(content))) this.create(name, content);
  }

  /** As `write`, where none of this name is there: to find that out takes as long as to write it. */
  create(name: string, content: string): void {
    const path = join(this.#directory, name);
    if (!this.#writeSpare(path, content)) writeSmallFile(path, content, this.#mode);
  }

  /** Makes one ahead, if there is none. That it cannot is no failure: the next one is made when it is needed. */
  async prepare(): Promise<void> {
    if (this.#spare === 'none') this.#spare = this.#prepare();
    if (this.#spare !== 'ready') await this.#spare;
  }

  async #prepare(): Promise<void> {
    try {
      const file = await open(this.#sparePath, 'w', this.#mode);
      await file.close();
      this.#spare = 'ready';
    } catch {
      this.#spare = 'none';
    }
  }

  /** False where there is none. */
  #writeSpare(path: string, content: string): boolean {
    if (this.#spare !== 'ready') return false;
    this.#spare = 'none';
    try {
      writeFileSync(this.#sparePath, content, { flag: 'r+' });
    } catch (error) {
      if (isMissing(error)) return false;
      rmSync(this.#sparePath, { force: true });
      throw error;
    }
    renameSync(this.#sparePath, path);
    return true;
  }

  get #sparePath(): string {
    return join(this.#directory, spareName);
  }
}

/** False where there is none, or one of the two is too long. */
function writeOver(path: string, content: Buffer): boolean {
  if (content.byteLength > pageBytes) return false;
  let file: number;
  try {
    file = openSync(path, 'r+');
  } catch (error) {
    if (isMissing(error)) return false;
    throw error;
  }
  try {
    const { size } = fstatSync(file);
    if (size > pageBytes) return false;
    const padded = Buffer.alloc(Math.max(size, content.byteLength), blank);
    content.copy(padded);
    return writeSync(file, padded, 0, padded.byteLength, 0) === padded.byteLength;
  } finally {
    closeSync(file);
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
