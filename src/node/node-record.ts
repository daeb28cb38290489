/**
 * What a node keeps about one sandbox, in `record.json` in the sandbox's directory. The record is the truth about what the node has
 * applied; it is replaced as a whole and survives a crash of the machine. Settings that were applied since it was written, and pauses, lie
 * in the slots beside it, which survive a crash of the node alone: they are about a life, and a machine that crashes has ended it.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type PreparedFile, prepareFile } from '../base/index.ts';
import { templateDefaults } from '../layers/index.ts';
import { type EndReason, idSchema, type NodeEvent, type NodeSandbox } from '../protocol/index.ts';
import { lifeSchema, markSchema, settingsSchema, specSchema } from './order-schemas.ts';
import { overlaySlots, slotsFileName } from './settings-slots.ts';

const formatVersion = 2;
export const recordFileName = 'record.json';

/** A template as a sandbox was made from it. */
export const templateOfRecord = templateDefaults.extend({ id: idSchema('template') });

const recordSchema = z.strictObject({
  format: z.literal(formatVersion),
  mark: markSchema,
  spec: specSchema,
  generation: z.int().positive(),
  version: z.int().nonnegative(),
  settings: settingsSchema,
  /** `settings.expiresAtMs` as boot time when it was applied; 0: never. The wall clock may jump afterwards. */
  deadlineBootMs: z.int().nonnegative(),
  /** Names in the layers directory, uppermost first. */
  layers: z.array(z.string().regex(/^[A-Za-z0-9_-]+$/)).min(1),
  usrLayers: z.array(z.string().startsWith('/')),
  /** What it writes to, in the storage of layers. */
  writable: idSchema('writable'),
  /** Whose files it began with. */
  fromCheckpoint: idSchema('checkpoint').nullable(),
  /** What it was made from, as it was then: its name may lead elsewhere since. Absent: the `host` template. */
  template: templateOfRecord.optional(),
  /** The start command of this life, until it is ready: a node that dies before that finishes it when it starts again. */
  startOwed: idSchema('process').optional(),
  slot: z.int().nonnegative(),
  bootId: z.string(),
  life: lifeSchema,
});

export type NodeRecord = z.infer<typeof recordSchema>;

/** `undefined` where there is no record; throws where there is one that cannot be read. */
export async function readRecord(directory: string): Promise<NodeRecord | undefined> {
  const text = await readIfPresent(join(directory, recordFileName));
  if (text === undefined) return undefined;
  const record = parseRecord(text.toString('utf8'));
  const slots = await readIfPresent(join(directory, slotsFileName));
  return slots === undefined ? record : overlaySlots(record, slots);
}

async function readIfPresent(path: string): Promise<Buffer | undefined> {
  try {
    return await readFile(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

export function parseRecord(text: string): NodeRecord {
  return recordSchema.parse(JSON.parse(text));
}

export async function prepareRecord(directory: string, record: NodeRecord): Promise<PreparedFile> {
  const text = `${JSON.stringify({ ...record, format: formatVersion })}\n`;
  return await prepareFile(join(directory, recordFileName), text, { mode: 0o600, durable: true });
}

export async function writeRecord(directory: string, record: NodeRecord): Promise<void> {
  const prepared = await prepareRecord(directory, record);
  await prepared.commit();
}

/** How others see it. */
export function viewOf(record: NodeRecord): NodeSandbox {
  const { mark, spec, generation, version, settings, life } = record;
  return { mark, spec, generation, version, settings, life };
}

/** What is told when its life is over. */
export function endOf(record: NodeRecord, end: { readonly reason: EndReason; readonly atMs: number }): NodeEvent {
  const { mark, generation } = record;
  return { kind: 'ended', sandboxId: mark.sandboxId, generation, reason: end.reason, atMs: end.atMs };
}
