/**
 * The two small files that make a directory a layer or a writable layer. A manifest ends with a digest of itself: one that was cut short or
 * changed is told from a whole one.
 */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { writeFileDurably } from '../base/index.ts';
import { idSchema } from '../protocol/index.ts';

/** How many layers may lie under one writable layer; the spawner takes 480 with those of the template. */
export const parentsMax = 400;

const manifestName = 'manifest.json';
const recordName = 'writable.json';
const format = 1;

const driver = z.enum(['btrfs', 'directory']);
const base = z.string().min(1).max(200);
const parents = z.array(idSchema('layer')).max(parentsMax);

const manifestSchema = z.strictObject({
  format: z.literal(format),
  id: idSchema('layer'),
  driver,
  base,
  parents,
  flattens: parents.nullable(),
  createdAtMs: z.int(),
});
export type LayerManifest = z.infer<typeof manifestSchema>;

const recordSchema = z.strictObject({
  format: z.literal(format),
  id: idSchema('writable'),
  base,
  parents,
  /** Its content is on its way to become this layer. */
  movingTo: idSchema('layer').nullable(),
  /** What it began with, where that is counted by who wrote it. */
  foreignBytes: z.int().nonnegative().optional(),
});
export type WritableRecord = z.infer<typeof recordSchema>;

/** Into a directory that nobody sees yet, and that is synced before anybody does. */
export async function writeManifest(directory: string, manifest: LayerManifest): Promise<void> {
  await writeFile(join(directory, manifestName), withDigest(manifest), { mode: 0o600, flush: true });
}

/** Throws when it is absent, incomplete, changed, of another format or of another layer. */
export async function readManifest(directory: string, id: string): Promise<LayerManifest> {
  const manifest = manifestSchema.parse(await readWithDigest(join(directory, manifestName)));
  if (manifest.id !== id) throw new Error(`It is the manifest of ${manifest.id}.`);
  return manifest;
}

/** The first record of one that nobody sees yet. */
export async function describeWritable(directory: string, record: WritableRecord): Promise<void> {
  await writeFile(join(directory, recordName), withDigest(record), { mode: 0o600, flush: true });
}

export async function writeRecord(directory: string, record: WritableRecord): Promise<void> {
  await writeFileDurably(join(directory, recordName), withDigest(record));
}

export async function readRecord(directory: string, id: string): Promise<WritableRecord> {
  const record = recordSchema.parse(await readWithDigest(join(directory, recordName)));
  if (record.id !== id) throw new Error(`It is the record of ${record.id}.`);
  return record;
}

export const newRecord = (
  fields: Pick<WritableRecord, 'id' | 'base' | 'parents' | 'foreignBytes'>,
): WritableRecord => ({
  format,
  ...fields,
  movingTo: null,
});

export const newManifest = (fields: Omit<LayerManifest, 'format'>): LayerManifest => ({ format, ...fields });

function withDigest(content: object): string {
  const text = JSON.stringify(content);
  return `${text}\n${digestOf(text)}\n`;
}

async function readWithDigest(path: string): Promise<unknown> {
  const [text = '', digest, end] = (await readFile(path, 'utf8')).split('\n');
  if (digest !== digestOf(text) || end !== '') throw new Error('Its digest does not fit.');
  return JSON.parse(text);
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
