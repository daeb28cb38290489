/** Pieces that several routes share. Limits stand here, with their names, so that documentation and refusal agree. */
import { z } from 'zod';

/** No body, no query or no result. */
export const none = z.strictObject({});

export const instant = z.iso.datetime();

export const metadataLimits = { keys: 128, keyLength: 128, valueLength: 2_048, totalBytes: 16_384 } as const;

/** A text without NUL bytes. */
export function text(options: { maxLength: number }) {
  return z
    .string()
    .min(1)
    .max(options.maxLength)
    .refine((value) => !value.includes('\0'), 'A NUL byte is not allowed.');
}

const metadataKey = z
  .string()
  .min(1, 'A metadata key is not empty.')
  .max(metadataLimits.keyLength, `A metadata key has at most ${metadataLimits.keyLength} characters.`)
  .refine((value) => !value.includes('\0'), 'A NUL byte is not allowed.');
const metadataValue = z
  .string()
  .max(metadataLimits.valueLength, `A metadata value has at most ${metadataLimits.valueLength} characters.`)
  .refine((value) => !value.includes('\0'), 'A NUL byte is not allowed.');

export const metadataMap = z.record(metadataKey, metadataValue);
export const metadataPatch = z.record(metadataKey, metadataValue.nullable());

const mebibyte = 1024 * 1024;
export const limits = z.strictObject({
  memoryBytes: z
    .int()
    .min(16 * mebibyte)
    .max(1024 * 1024 * mebibyte)
    .optional(),
  /** Thousandths of one core. */
  cpuMillis: z.int().min(10).max(1_000_000).optional(),
  processes: z.int().min(4).max(100_000).optional(),
  /** What its own files may take; null: as much as there is. Refused where the node's storage cannot bound it. */
  diskBytes: z
    .int()
    .min(16 * mebibyte)
    .max(1024 * 1024 * mebibyte)
    .nullable()
    .optional(),
});

export const cursor = z.string().min(1).max(200);
export const pageLimitMax = 1_000;
/** As it stands in a query; absent: 100. */
export const pageLimit = z.coerce.number().int().min(1).max(pageLimitMax).default(100);
