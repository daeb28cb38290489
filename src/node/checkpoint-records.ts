/**
 * What a node keeps about each checkpoint, one file a checkpoint: which layer its files are, whose they were, and what their owner was
 * made from. A checkpoint is there exactly while its file is; a layer that no file names is collected.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type Logger, syncDirectory, writeFileDurably } from '../base/index.ts';
import { type CheckpointId, idSchema, isId, type LayerId, type NodeCheckpoint } from '../protocol/index.ts';
import { templateOfRecord } from './node-record.ts';
import { specSchema } from './order-schemas.ts';

const formatVersion = 1;
const suffix = '.json';

const count = z.int().nonnegative();
const recordSchema = z.strictObject({
  format: z.literal(formatVersion),
  checkpointId: idSchema('checkpoint'),
  layer: idSchema('layer'),
  sandboxId: idSchema('sandbox'),
  generation: z.int().positive(),
  spec: specSchema,
  metadata: z.record(z.string(), z.string()),
  metadataVersion: count,
  templateId: z.string(),
  /** What its owner's template gave to commands; absent: it was `host`. */
  template: templateOfRecord.optional(),
  createdAtMs: count,
  sizeBytes: count,
  frozenMs: count,
});

export type CheckpointRecord = z.infer<typeof recordSchema>;

export class CheckpointRecords {
  readonly #directory: string;
  readonly #records = new Map<CheckpointId, CheckpointRecord>();
  /** Files that cannot be read. They are kept, and while there is one no layer is collected: it may be theirs. */
  readonly unreadable: string[] = [];

  private constructor(directory: string) {
    this.#directory = directory;
  }

  static async open(directory: string, log: Logger): Promise<CheckpointRecords> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const records = new CheckpointRecords(directory);
    // What a write that was cut short left has another ending.
    for (const name of await readdir(directory)) {
      if (!name.endsWith(suffix)) await rm(join(directory, name));
      else await records.#read(name, log);
    }
    return records;
  }

  find(id: CheckpointId): CheckpointRecord | undefined {
    return this.#records.get(id);
  }

  list(): CheckpointRecord[] {
    return [...this.#records.values()];
  }

  layers(): LayerId[] {
    return this.list().map(({ layer }) => layer);
  }

  async write(record: Omit<CheckpointRecord, 'format'>): Promise<CheckpointRecord> {
    const whole: CheckpointRecord = { format: formatVersion, ...record };
    await writeFileDurably(this.#path(record.checkpointId), `${JSON.stringify(whole)}\n`);
    this.#records.set(record.checkpointId, whole);
    return whole;
  }

  async remove(id: CheckpointId): Promise<void> {
    await rm(this.#path(id), { force: true });
    await syncDirectory(this.#directory);
    this.#records.delete(id);
  }

  async #read(name: string, log: Logger): Promise<void> {
    try {
      const record = recordSchema.parse(JSON.parse(await readFile(join(this.#directory, name), 'utf8')));
      const id = name.slice(0, -suffix.length);
      if (!isId('checkpoint', id) || record.checkpointId !== id) throw new Error(`It is of ${record.checkpointId}.`);
      this.#records.set(id, record);
    } catch (error) {
      log.error('A checkpoint cannot be read; it is kept as it is.', { name, error });
      this.unreadable.push(name);
    }
  }

  #path(id: CheckpointId): string {
    return join(this.#directory, `${id}${suffix}`);
  }
}

/** How others see it. */
export function checkpointView(record: CheckpointRecord): NodeCheckpoint {
  const { format: _format, layer: _layer, template: _template, ...view } = record;
  return view;
}
