/** Backups: a directory of a sandbox as a portable archive, kept by the server, to be downloaded or put into any sandbox. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, none, pageLimit, text } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';

export const backupLimits = {
  /** Of one archive, compressed. */
  bytes: 16 * 1024 ** 3,
  /** Of one team. */
  backups: 1_000,
  /** `.gitignore` files that are read for one backup, and of how many bytes each. */
  ignoreFiles: 1_000,
  ignoreFileBytes: 64 * 1024,
} as const;

const path = text({ maxLength: 4_096 });
const user = text({ maxLength: 100 }).optional();

export const backupView = z.object({
  id: idSchema('backup'),
  sandboxId: idSchema('sandbox'),
  /** As it was given: the directory that it holds. */
  path: z.string(),
  name: z.string().nullable(),
  /** Of the archive, compressed. */
  sizeBytes: z.int(),
  /** SHA-256 of the archive, hex. */
  digest: z.string(),
  createdAt: instant,
  createdBy: idSchema('key'),
  /** null: it is kept until somebody deletes it. */
  expiresAt: instant.nullable(),
});
export type BackupView = z.output<typeof backupView>;

const backupParams = z.object({ backupId: idSchema('backup') });
const fileErrors = [
  'sandbox_not_found',
  'sandbox_wrong_state',
  'sandbox_paused',
  'stale_generation',
  'lease_held',
  'lease_lost',
  'file_not_found',
  'not_a_directory',
  'permission_denied',
  'user_not_usable',
  'node_unavailable',
  'sandbox_unavailable',
] as const;

export const createBackup = defineRoute({
  name: 'createBackup',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/backups',
  summary: 'Keeps a directory of a running sandbox as a compressed tar archive. A failure leaves nothing.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    path,
    name: text({ maxLength: 100 }).optional(),
    /** Leaves out what the `.gitignore` files in the directory name, and `.git` itself. */
    gitignore: z.boolean().default(false),
    expiresInMs: z
      .int()
      .min(1)
      .max(365 * 24 * 3600 * 1000)
      .nullable()
      .default(null),
    user,
  }),
  result: backupView,
  status: 201,
  errors: [...fileErrors, 'limit_exceeded'],
});

export const listBackups = defineRoute({
  name: 'listBackups',
  method: 'GET',
  path: '/v1/backups',
  summary: 'Lists backups, newest first; those of sandboxes that are gone too.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({ sandboxId: idSchema('sandbox').optional(), cursor: cursor.optional(), limit: pageLimit }),
  body: none,
  result: z.object({ items: z.array(backupView), nextCursor: z.string().nullable() }),
  errors: [],
});

export const getBackup = defineRoute({
  name: 'getBackup',
  method: 'GET',
  path: '/v1/backups/:backupId',
  summary: 'One backup.',
  scope: 'sandboxes:read',
  params: backupParams,
  query: none,
  body: none,
  result: backupView,
  errors: ['backup_not_found'],
});

export const downloadBackup = defineRoute({
  name: 'downloadBackup',
  method: 'GET',
  path: '/v1/backups/:backupId/archive',
  summary: 'The archive: a tar, compressed with gzip, names relative to the directory that was backed up.',
  scope: 'sandboxes:read',
  params: backupParams,
  query: none,
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: ['backup_not_found'],
});

export const restoreBackup = defineRoute({
  name: 'restoreBackup',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/backups/:backupId/restore',
  summary:
    'Unpacks a backup into a directory of any running sandbox, which is made if it is missing. Other files there stay.',
  scope: 'sandboxes:write',
  params: sandboxParams.extend({ backupId: idSchema('backup') }),
  query: none,
  body: z.strictObject({ path, user }),
  result: z.object({ bytes: z.int() }),
  errors: [...fileErrors, 'backup_not_found', 'file_storage_full', 'file_not_usable'],
});

export const deleteBackup = defineRoute({
  name: 'deleteBackup',
  method: 'DELETE',
  path: '/v1/backups/:backupId',
  summary: 'Deletes a backup.',
  scope: 'sandboxes:write',
  params: backupParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['backup_not_found'],
});
