/**
 * Files of a running sandbox. A path is absolute, or relative to /workspace, or to where the shell of `session` is; it is resolved inside the sandbox, with the rights of `user`.
 * Content travels as raw bytes in a body of its own, everything else as JSON.
 */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { fileTypes } from '../node-files.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, none, pageLimit, text } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';
import { sessionReference } from './sessions.ts';

export const fileLimits = {
  pathBytes: 4_095,
  depth: 64,
  /** Of one file or one archive that is sent. */
  uploadBytes: 64 * 1024 ** 3,
  /** Of a body that is sent with an idempotency key: it is held whole, to tell whether it is the same one. */
  keyedUploadBytes: 8 * 1024 * 1024,
  watchGlobs: 32,
  /** Of all labels of a file that are set at once. */
  labelBytes: 8 * 1024,
} as const;

const filePath = text({ maxLength: fileLimits.pathBytes });
const user = text({ maxLength: 64 });
/** Its user is the default, and relative paths are below where its shell is now. */
const session = sessionReference;
/** As chmod takes it. */
const mode = z.string().regex(/^[0-7]{3,4}$/, 'It is octal, such as 644 or 0755.');
const flag = z.enum(['true', 'false']).default('false');
const owner = z.string().regex(/^[^:\0]{1,64}(:[^:\0]{1,64})?$/, 'It is a user or user:group, by name or id.');

export const fileEntry = z.object({
  path: z.string(),
  /** Where the path is not UTF-8: its bytes. `path` then shows U+FFFD in place of what is not. */
  pathBase64: z.string().nullable(),
  type: z.enum(fileTypes),
  sizeBytes: z.int(),
  mode,
  uid: z.int(),
  gid: z.int(),
  modifiedAt: instant,
  /** For If-Match. */
  etag: z.string(),
  linkTarget: z.string().nullable(),
});
export type FileView = z.output<typeof fileEntry>;

const lookErrors = [
  'session_not_found',
  'session_terminated',
  'file_not_found',
  'not_a_directory',
  'file_not_usable',
  'permission_denied',
  'user_not_usable',
  'sandbox_not_found',
  'sandbox_wrong_state',
  'limit_exceeded',
  'sandbox_unavailable',
  'node_unavailable',
] as const;
const changeErrors = [
  ...lookErrors,
  'file_exists',
  'is_a_directory',
  'file_storage_full',
  'stale_generation',
  'lease_held',
  'lease_lost',
  'outcome_unknown',
] as const;

export const readFile = defineRoute({
  name: 'readFile',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/content',
  summary:
    'The bytes of a file. Takes `Range: bytes=…` (one range); answers with size, `ETag` and `Last-Modified`. A transfer that ends early was broken off.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({ path: filePath, user: user.optional(), session: session.optional() }),
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: [...lookErrors, 'is_a_directory', 'range_not_satisfiable'],
});

export const writeFile = defineRoute({
  name: 'writeFile',
  method: 'PUT',
  path: '/v1/sandboxes/:sandboxId/files/content',
  summary:
    'Writes the body to a file. It replaces the file whole or not at all and keeps its mode and owner, or appends. `If-Match` takes an `ETag`, `If-None-Match: *` asks that there is no file yet.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: z.strictObject({
    path: filePath,
    user: user.optional(),
    session: session.optional(),
    append: flag,
    /** Of a new file (default 644), or from now on of this one. */
    mode: mode.optional(),
    owner: owner.optional(),
    /** Makes directories that are missing. */
    parents: z.enum(['true', 'false']).default('true'),
  }),
  body: none,
  bodyKind: 'bytes',
  bodyLimitBytes: fileLimits.uploadBytes,
  ifMatch: 'etag',
  result: fileEntry,
  errors: [...changeErrors, 'file_changed'],
});

export const statFile = defineRoute({
  name: 'statFile',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/stat',
  summary: 'What a path is. Of a symlink what it leads to, unless `followLinks=false`.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({
    path: filePath,
    user: user.optional(),
    session: session.optional(),
    followLinks: z.enum(['true', 'false']).default('true'),
  }),
  body: none,
  result: fileEntry,
  errors: lookErrors,
});

export const listFiles = defineRoute({
  name: 'listFiles',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files',
  summary:
    'What a directory holds, by path, in the order of its bytes, down to `depth` levels. Symlinks are listed, never followed. Pages are read anew: what changes between them may be missed.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({
    path: filePath.default('.'),
    user: user.optional(),
    session: session.optional(),
    depth: z.coerce.number().int().min(1).max(fileLimits.depth).default(1),
    limit: pageLimit,
    cursor: cursor.max(16_384).optional(),
  }),
  body: none,
  result: z.object({ items: z.array(fileEntry), nextCursor: z.string().nullable() }),
  errors: lookErrors,
});

export const fileChange = z.object({
  kind: z.enum(['created', 'modified', 'deleted']),
  path: z.string(),
  pathBase64: z.string().nullable(),
  /** As it is now; null: it is gone. */
  entry: fileEntry.nullable(),
});
export type FileChangeView = z.output<typeof fileChange>;

export const listFileChanges = defineRoute({
  name: 'listFileChanges',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/changes',
  summary:
    'What differs below a directory from an earlier look, which `since` names; without it this is the first look. Every difference is told; what changed within 0.1 s of a look is told again by the next. The newest 16 cursors of a sandbox are kept.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({
    path: filePath.default('.'),
    user: user.optional(),
    session: session.optional(),
    since: idSchema('mark').optional(),
    limit: pageLimit,
  }),
  body: none,
  result: z.object({
    items: z.array(fileChange),
    /** For `since` in the next request. */
    cursor: idSchema('mark'),
    /** More than `limit` differ: ask for the rest since this cursor. */
    hasMore: z.boolean(),
  }),
  errors: [...lookErrors, 'output_dropped', 'insufficient_storage'],
});

export const makeDirectory = defineRoute({
  name: 'makeDirectory',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/files/directories',
  summary: 'Makes a directory. With `parents` also those above it, and one that is there is no error.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    path: filePath,
    user: user.optional(),
    session: session.optional(),
    mode: mode.optional(),
    parents: z.boolean().default(false),
  }),
  result: fileEntry,
  status: 201,
  errors: changeErrors,
});

const fromTo = { from: filePath, to: filePath, user: user.optional(), session: session.optional() };

export const moveFile = defineRoute({
  name: 'moveFile',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/files/move',
  summary:
    'Gives a file or directory another path. What is at `to` is refused, or with `replace` replaced, as rename does it. Between /usr and the rest use copy.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({ ...fromTo, replace: z.boolean().default(false) }),
  result: fileEntry,
  errors: [...changeErrors, 'is_a_directory', 'directory_not_empty'],
});

export const copyFile = defineRoute({
  name: 'copyFile',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/files/copy',
  summary: 'Copies a file, or with `recursive` a directory. Symlinks are copied as symlinks.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    ...fromTo,
    recursive: z.boolean().default(false),
    replace: z.boolean().default(false),
  }),
  result: fileEntry,
  errors: [...changeErrors, 'directory_not_empty'],
});

export const removeFile = defineRoute({
  name: 'removeFile',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/files',
  summary:
    'Removes a file, a symlink (not what it leads to) or an empty directory; with `recursive` whatever is there.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: z.strictObject({ path: filePath, user: user.optional(), session: session.optional(), recursive: flag }),
  body: none,
  result: none,
  status: 204,
  errors: [...changeErrors, 'directory_not_empty'],
});

export const changeFileAttributes = defineRoute({
  name: 'changeFileAttributes',
  method: 'PATCH',
  path: '/v1/sandboxes/:sandboxId/files/attributes',
  summary: 'Changes mode, owner or both.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    path: filePath,
    user: user.optional(),
    session: session.optional(),
    mode: mode.optional(),
    owner: owner.optional(),
  }),
  result: fileEntry,
  errors: changeErrors,
});

/** Without the `user.` that the names of extended attributes begin with here. */
const labelName = z.string().regex(/^[\x21-\x7e]{1,250}$/, 'It is 1 to 250 printable characters without spaces.');
const labelMap = z
  .record(labelName, text({ maxLength: fileLimits.labelBytes }))
  .refine(
    (labels) => new TextEncoder().encode(JSON.stringify(labels)).length <= fileLimits.labelBytes,
    'The labels of a file are too large.',
  );

export const getFileLabels = defineRoute({
  name: 'getFileLabels',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/labels',
  summary:
    'Small texts that are kept with a file: its extended attributes whose names begin with `user.`, without that.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({ path: filePath, user: user.optional(), session: session.optional() }),
  body: none,
  result: z.object({ labels: z.record(z.string(), z.string()) }),
  errors: lookErrors,
});

export const setFileLabels = defineRoute({
  name: 'setFileLabels',
  method: 'PUT',
  path: '/v1/sandboxes/:sandboxId/files/labels',
  summary: 'Sets the labels of a file. Those that begin with `prefix` and are not among them are removed.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    path: filePath,
    user: user.optional(),
    session: session.optional(),
    prefix: z
      .string()
      .regex(/^[\x21-\x7e]{0,250}$/)
      .default(''),
    labels: labelMap,
  }),
  result: none,
  status: 204,
  errors: changeErrors,
});

export const downloadTree = defineRoute({
  name: 'downloadTree',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/archive',
  summary:
    "A directory or file as a tar stream, names relative to it. A stream that ends without tar's end was broken off.",
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({ path: filePath, user: user.optional(), session: session.optional() }),
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: lookErrors,
});

export const uploadTree = defineRoute({
  name: 'uploadTree',
  method: 'PUT',
  path: '/v1/sandboxes/:sandboxId/files/archive',
  summary:
    'Unpacks a tar stream into a directory, which is made if it is missing. Names that leave it are refused. Not all or nothing: what was unpacked before a failure stays.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: z.strictObject({ path: filePath, user: user.optional(), session: session.optional() }),
  body: none,
  bodyKind: 'bytes',
  bodyLimitBytes: fileLimits.uploadBytes,
  result: z.object({ bytes: z.int() }),
  errors: changeErrors,
});

const globs = z
  .array(text({ maxLength: 1_024 }))
  .max(fileLimits.watchGlobs)
  .optional();

export const watchFiles = defineRoute({
  name: 'watchFiles',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/files/watch',
  summary:
    'Changes below a path as server-sent events, from the moment it answers (`armed`) until the connection ends. `overflow` says that some were lost.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({
    path: filePath.default('.'),
    user: user.optional(),
    session: session.optional(),
    recursive: flag,
    /** Globs on the path below the watched one; repeatable. Given: only what one of them matches. */
    include: globs,
    exclude: globs,
  }),
  body: none,
  result: z.object({
    kind: z.enum(['armed', 'created', 'modified', 'deleted', 'moved', 'overflow']),
    path: z.string().optional(),
    /** Where a moved one was. */
    from: z.string().optional(),
  }),
  errors: lookErrors,
});
export type FileEventView = z.output<typeof watchFiles.result>;
