/** Workspaces: versioned trees that sandboxes attach, change and publish to. A workspace is named by its id or by its name. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, none, pageLimit, text } from '../schemas.ts';

export const workspaceLimits = {
  /** Of one team. */
  workspaces: 1_000,
  /** Of one sandbox. */
  attachments: 16,
  /** Of what is imported. */
  importBytes: 4 * 1024 ** 3,
  messageLength: 64 * 1024,
  trailers: 32,
  /** Files that one diff lists; counts are of all. */
  diffFiles: 10_000,
  /** Conflicts that one refusal lists. */
  conflicts: 1_000,
} as const;

const name = text({ maxLength: 100 }).regex(
  /^[a-zA-Z0-9][a-zA-Z0-9._-]*$/,
  'A name is letters, digits, ".", "_" and "-".',
);
/** An id, or a name. */
export const workspaceReference = name;
export const workspaceParams = z.object({ workspace: workspaceReference });
const versionNumber = z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER);
const objectId = z.string().regex(/^[0-9a-f]{40}$/, 'Not the name of a git object: 40 hexadecimal digits.');
const message = z.string().max(workspaceLimits.messageLength);

export const commitAuthor = z.strictObject({
  name: text({ maxLength: 200 }).regex(/^[^<>\n]+$/, 'A name has no "<", ">" or line break.'),
  email: text({ maxLength: 200 }).regex(/^[^<>\s]+$/, 'An address has no "<", ">" or space.'),
});
const trailer = z.strictObject({
  name: text({ maxLength: 100 }).regex(/^[A-Za-z][A-Za-z0-9-]*$/, 'A trailer has a name of letters, digits and "-".'),
  value: text({ maxLength: 1_000 }).regex(/^[^\r\n]+$/, 'A trailer is one line.'),
});

const attachmentPath = text({ maxLength: 1_000 }).regex(/^\//, 'A path begins with "/".');

/** In `createSandbox` and `attachWorkspace`. */
export const attachWanted = z.strictObject({
  workspace: workspaceReference,
  path: attachmentPath.optional(),
  /** Absent: the newest. */
  version: z.int().min(1).optional(),
});

const changeCounts = z.object({ files: z.int(), insertions: z.int(), deletions: z.int() });

export const workspaceView = z.object({
  id: idSchema('workspace'),
  name: z.string(),
  /** `creating`: it has no version yet. */
  state: z.enum(['creating', 'ready', 'deleting']),
  /** The newest version; null: there is none yet. */
  head: z.object({ number: z.int(), commit: z.string() }).nullable(),
  nodeId: idSchema('node'),
  version: z.int(),
  createdAt: instant,
  createdBy: idSchema('key'),
  updatedAt: instant,
});
export type WorkspaceView = z.output<typeof workspaceView>;

export const versionKinds = ['import', 'commit', 'merge', 'revert'] as const;

export const workspaceVersionView = z.object({
  workspaceId: idSchema('workspace'),
  number: z.int(),
  commit: z.string(),
  kind: z.enum(versionKinds),
  /** The first line of the message. */
  summary: z.string(),
  author: z.string(),
  /** Whose changes it holds, where it was one sandbox. */
  sandboxId: idSchema('sandbox').nullable(),
  planId: idSchema('plan').nullable(),
  createdAt: instant,
  createdBy: idSchema('key'),
});
export type WorkspaceVersionView = z.output<typeof workspaceVersionView>;

export const attachmentView = z.object({
  sandboxId: idSchema('sandbox'),
  workspaceId: idSchema('workspace'),
  workspace: z.string(),
  path: z.string(),
  /** What its checkout stands on: the version that it was made from, or has since published or been brought to. */
  base: z.object({ number: z.int(), commit: z.string() }),
  /** True: the workspace has nothing that the checkout does not stand on. */
  isCurrent: z.boolean(),
  attachedAt: instant,
  attachedBy: idSchema('key'),
});
export type AttachmentView = z.output<typeof attachmentView>;

const fileChange = z.object({
  path: z.string(),
  pathBase64: z.string().nullable(),
  kind: z.enum(['added', 'modified', 'deleted', 'renamed', 'typeChanged']),
  from: z.string().nullable(),
  modeBefore: z.string().nullable(),
  modeAfter: z.string().nullable(),
  /** null: binary. */
  insertions: z.int().nullable(),
  deletions: z.int().nullable(),
});
export const workspaceDiff = z.object({ counts: changeCounts, files: z.array(fileChange), hasMore: z.boolean() });
export type WorkspaceDiff = z.output<typeof workspaceDiff>;

/** Where the workspace's home is asked to reach a git remote. */
const remote = z.strictObject({
  url: text({ maxLength: 2_000 }),
  /** A branch or tag; absent: the remote's HEAD. */
  ref: text({ maxLength: 250 }).optional(),
  credentials: z.strictObject({ username: z.string().max(1_000), password: z.string().max(10_000) }).optional(),
});

const known = ['workspace_not_found', 'workspace_wrong_state', 'node_unavailable', 'outcome_unknown'] as const;
const taken = [...known, 'workspace_moved', 'workspace_unsafe', 'limit_exceeded'] as const;

export const createWorkspace = defineRoute({
  name: 'createWorkspace',
  method: 'POST',
  path: '/v1/workspaces',
  summary: 'Makes a workspace. Its first version is empty, or with `content: "none"` whatever is imported first.',
  scope: 'sandboxes:write',
  params: none,
  query: none,
  body: z.strictObject({ name, content: z.enum(['empty', 'none']).default('empty') }),
  result: workspaceView,
  status: 201,
  errors: ['name_taken', 'limit_exceeded', 'node_unavailable', 'outcome_unknown'],
});

export const listWorkspaces = defineRoute({
  name: 'listWorkspaces',
  method: 'GET',
  path: '/v1/workspaces',
  summary: 'Lists workspaces, newest first.',
  scope: 'sandboxes:read',
  params: none,
  query: z.strictObject({ cursor: cursor.optional(), limit: pageLimit }),
  body: none,
  result: z.object({ items: z.array(workspaceView), nextCursor: z.string().nullable() }),
  errors: [],
});

export const getWorkspace = defineRoute({
  name: 'getWorkspace',
  method: 'GET',
  path: '/v1/workspaces/:workspace',
  summary: 'One workspace, and where sandboxes have it.',
  scope: 'sandboxes:read',
  params: workspaceParams,
  query: none,
  body: none,
  result: workspaceView.extend({ attachments: z.array(attachmentView) }),
  errors: ['workspace_not_found'],
});

export const deleteWorkspace = defineRoute({
  name: 'deleteWorkspace',
  method: 'DELETE',
  path: '/v1/workspaces/:workspace',
  summary: 'Deletes a workspace with all its versions. Refused while sandboxes have it; the details name them.',
  scope: 'sandboxes:write',
  params: workspaceParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['workspace_not_found', 'workspace_in_use', 'node_unavailable', 'outcome_unknown'],
});

const importQuery = z.strictObject({
  /** `bundle`: a git bundle, history and all; `archive`: a tar of a directory, which becomes one commit. */
  kind: z.enum(['bundle', 'archive']),
  /** Of a bundle: which of its heads; absent: its HEAD, or its only one. */
  ref: text({ maxLength: 250 }).optional(),
  /** Of an archive. */
  message: message.optional(),
  /** The head as the caller knows it; 0: none. Another one is refused with `workspace_moved`. */
  expectedHead: z.coerce.number().int().min(0).optional(),
});

export const importWorkspace = defineRoute({
  name: 'importWorkspace',
  method: 'POST',
  path: '/v1/workspaces/:workspace/import',
  summary: 'Adds what the body holds as the next version. It is verified as hostile, and refused whole.',
  scope: 'sandboxes:write',
  params: workspaceParams,
  query: importQuery,
  body: none,
  bodyKind: 'bytes',
  bodyLimitBytes: workspaceLimits.importBytes,
  result: workspaceVersionView,
  status: 201,
  errors: taken,
});

export const importWorkspaceRemote = defineRoute({
  name: 'importWorkspaceRemote',
  method: 'POST',
  path: '/v1/workspaces/:workspace/import-remote',
  summary: 'Adds a commit of a git remote, with its history, as the next version.',
  scope: 'sandboxes:write',
  params: workspaceParams,
  query: none,
  body: remote.extend({ expectedHead: z.int().min(0).optional() }),
  result: workspaceVersionView,
  status: 201,
  errors: [...taken, 'workspace_remote_failed'],
});

export const exportWorkspace = defineRoute({
  name: 'exportWorkspace',
  method: 'GET',
  path: '/v1/workspaces/:workspace/export',
  summary: 'A version as a git bundle (the branch `main`, without what `since` has) or as a tar of its files.',
  scope: 'sandboxes:read',
  params: workspaceParams,
  query: z.strictObject({
    kind: z.enum(['bundle', 'archive']).default('bundle'),
    /** Absent: the newest. */
    version: versionNumber.optional(),
    /** Of a bundle: versions that whoever reads it has. */
    since: z.array(versionNumber).max(100).optional(),
  }),
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: known,
});

export const pushWorkspace = defineRoute({
  name: 'pushWorkspace',
  method: 'POST',
  path: '/v1/workspaces/:workspace/push',
  summary: 'Moves a branch of a git remote to a version, only forward from what the workspace has.',
  scope: 'sandboxes:write',
  params: workspaceParams,
  query: none,
  body: remote.extend({ version: z.int().min(1).optional() }),
  result: z.object({ number: z.int(), commit: z.string() }),
  errors: [...known, 'workspace_remote_failed', 'workspace_remote_moved', 'workspace_unsafe'],
});

export const listWorkspaceVersions = defineRoute({
  name: 'listWorkspaceVersions',
  method: 'GET',
  path: '/v1/workspaces/:workspace/versions',
  summary: 'The versions of a workspace, newest first.',
  scope: 'sandboxes:read',
  params: workspaceParams,
  query: z.strictObject({ before: versionNumber.optional(), limit: pageLimit }),
  body: none,
  result: z.object({ items: z.array(workspaceVersionView), nextBefore: z.int().nullable() }),
  errors: ['workspace_not_found'],
});

export const getWorkspaceVersion = defineRoute({
  name: 'getWorkspaceVersion',
  method: 'GET',
  path: '/v1/workspaces/:workspace/versions/:number',
  summary: 'One version, with its whole message and its parents.',
  scope: 'sandboxes:read',
  params: workspaceParams.extend({ number: versionNumber }),
  query: none,
  body: none,
  result: workspaceVersionView.extend({ message: z.string(), tree: z.string(), parents: z.array(z.string()) }),
  errors: known,
});

const diffQuery = z.strictObject({
  from: versionNumber,
  /** Absent: the newest. */
  to: versionNumber.optional(),
});

export const diffWorkspace = defineRoute({
  name: 'diffWorkspace',
  method: 'GET',
  path: '/v1/workspaces/:workspace/diff',
  summary: 'What differs between two versions.',
  scope: 'sandboxes:read',
  params: workspaceParams,
  query: diffQuery.extend({ limit: z.coerce.number().int().min(1).max(workspaceLimits.diffFiles).default(1_000) }),
  body: none,
  result: workspaceDiff,
  errors: known,
});

export const patchWorkspace = defineRoute({
  name: 'patchWorkspace',
  method: 'GET',
  path: '/v1/workspaces/:workspace/patch',
  summary: 'What differs between two versions, as a patch that `git apply` takes.',
  scope: 'sandboxes:read',
  params: workspaceParams,
  query: diffQuery,
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: known,
});

export const readWorkspaceBlob = defineRoute({
  name: 'readWorkspaceBlob',
  method: 'GET',
  path: '/v1/workspaces/:workspace/blobs/:blob',
  summary: 'The bytes of one file as git keeps it: a side of a conflict, by the name that its details give.',
  scope: 'sandboxes:read',
  params: workspaceParams.extend({ blob: objectId }),
  query: none,
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: known,
});

export const revertWorkspace = defineRoute({
  name: 'revertWorkspace',
  method: 'POST',
  path: '/v1/workspaces/:workspace/revert',
  summary: 'Adds a version that equals an earlier one.',
  scope: 'sandboxes:write',
  params: workspaceParams,
  query: none,
  body: z.strictObject({
    version: z.int().min(1),
    message: message.optional(),
    author: commitAuthor.optional(),
    expectedHead: z.int().min(0).optional(),
  }),
  result: workspaceVersionView,
  status: 201,
  errors: [...known, 'workspace_moved'],
});

export { commitAuthor as workspaceAuthor, message as workspaceMessage, trailer as workspaceTrailer };
