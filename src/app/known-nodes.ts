/** Which node is at which address, so that a server can start and show its sandboxes while a node is away. */
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { writeFileDurably } from '../base/index.ts';
import { idSchema, type NodeId } from '../protocol/index.ts';
import type { DataDirectory } from './data-directory.ts';

const fileSchema = z.record(z.string(), idSchema('node'));

export class KnownNodes {
  readonly #path: string;

  constructor(directory: DataDirectory) {
    this.#path = directory.file('nodes.json');
  }

  async find(url: string): Promise<NodeId | undefined> {
    return (await this.#read())[url];
  }

  async remember(url: string, nodeId: NodeId): Promise<void> {
    await writeFileDurably(this.#path, `${JSON.stringify({ ...(await this.#read()), [url]: nodeId })}\n`);
  }

  async #read(): Promise<Record<string, NodeId>> {
    try {
      return fileSchema.parse(JSON.parse(await readFile(this.#path, 'utf8')));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
      throw error;
    }
  }
}
