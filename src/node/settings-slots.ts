/**
 * The settings of a sandbox on disk, as they change while it lives: two slots of one block each in a file of fixed size beside
 * `record.json`. A change is one write into the slot that is not in use, so that a write that is cut short leaves the other.
 *
 *   8 bytes  magic    tells a slot from zeros, and this format from a later one
 *   4 bytes  crc32    of the length and of the content
 *   4 bytes  length   of the content
 *            content  JSON: of which life, which version, the settings, and whether it runs or is paused
 *
 * A slot counts when it is whole, of the life that the record tells of, and newer than the record; otherwise the record does.
 */
import { crc32 } from 'node:zlib';
import { z } from 'zod';
import { lifeSchema, settingsSchema } from './order-schemas.ts';

export const slotsFileName = 'settings';
/** A block: it reaches the disk without anything being read first. Settings that do not fit go into the record itself. */
export const slotBytes = 4096;
export const slotCount = 2;
export const slotsFileBytes = slotCount * slotBytes;

const magic = Buffer.from('ATOLLST1', 'latin1');
const crcAt = magic.length;
const lengthAt = crcAt + 4;
const contentAt = lengthAt + 4;

const appliedSchema = z.strictObject({
  generation: z.int().positive(),
  version: z.int().nonnegative(),
  settings: settingsSchema,
  deadlineBootMs: z.int().nonnegative(),
  /** Absent: as the record has it. */
  life: lifeSchema.optional(),
});

/** The part of a record that changes while a sandbox lives. */
export type AppliedSettings = z.infer<typeof appliedSchema>;

/** A whole slot, or `undefined` when it does not fit into one. */
export function encodeSlot(applied: AppliedSettings): Buffer | undefined {
  const { generation, version, settings, deadlineBootMs, life } = applied;
  const content = Buffer.from(JSON.stringify({ generation, version, settings, deadlineBootMs, life }));
  if (content.length > slotBytes - contentAt) return undefined;
  const slot = Buffer.alloc(slotBytes);
  magic.copy(slot);
  slot.writeUInt32LE(content.length, lengthAt);
  content.copy(slot, contentAt);
  slot.writeUInt32LE(checksumOf(slot, content.length), crcAt);
  return slot;
}

/** What each slot holds; `undefined` for one that was never written, or not to its end. */
export function parseSlots(file: Buffer): (AppliedSettings | undefined)[] {
  return Array.from({ length: slotCount }, (_, index) =>
    parseSlot(file.subarray(index * slotBytes, (index + 1) * slotBytes)),
  );
}

/** Which slot holds exactly this; the other one may be written. */
export function findSlot(
  slots: readonly (AppliedSettings | undefined)[],
  current: Pick<AppliedSettings, 'generation' | 'version'>,
): number | undefined {
  const at = slots.findIndex((slot) => slot?.generation === current.generation && slot.version === current.version);
  return at === -1 ? undefined : at;
}

/** The record with the newest settings of its life. */
export function overlaySlots<Base extends AppliedSettings>(record: Base, file: Buffer): Base {
  let newest = record;
  for (const slot of parseSlots(file)) {
    if (slot?.generation === record.generation && slot.version > newest.version) newest = { ...record, ...slot };
  }
  return newest;
}

function parseSlot(slot: Buffer): AppliedSettings | undefined {
  if (slot.length < slotBytes || !slot.subarray(0, magic.length).equals(magic)) return undefined;
  const length = slot.readUInt32LE(lengthAt);
  if (length > slotBytes - contentAt || slot.readUInt32LE(crcAt) !== checksumOf(slot, length)) return undefined;
  return appliedSchema.parse(JSON.parse(slot.toString('utf8', contentAt, contentAt + length)));
}

function checksumOf(slot: Buffer, length: number): number {
  return crc32(slot.subarray(lengthAt, contentAt + length));
}
