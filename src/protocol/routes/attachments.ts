/** Workspaces in sandboxes: attached at a path, changed there, looked at, published, brought up to date or dropped. */
import { z } from 'zod';
import { defineRoute } from '../route.ts';
import { none } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';
import {
  attachmentView,
  attachWanted,
  workspaceAuthor,
  workspaceDiff,
  workspaceLimits,
  workspaceMessage,
  workspaceReference,
  workspaceTrailer,
  workspaceVersionView,
} from './workspaces.ts';

const attachmentParams = sandboxParams.extend({ workspace: workspaceReference });
const errors = [
  'sandbox_not_found',
  'sandbox_wrong_state',
  'sandbox_paused',
  'stale_generation',
  'version_mismatch',
  'lease_held',
  'lease_lost',
  'workspace_not_found',
  'workspace_wrong_state',
  'node_unavailable',
  'sandbox_unavailable',
  'outcome_unknown',
] as const;
const fileErrors = [
  'file_not_found',
  'file_exists',
  'not_a_directory',
  'file_not_usable',
  'file_storage_full',
] as const;
const collectErrors = [...errors, 'file_changed', 'workspace_unsafe', 'limit_exceeded', 'storage_failed'] as const;

export const listAttachments = defineRoute({
  name: 'listAttachments',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/workspaces',
  summary: 'The workspaces of a sandbox, by path.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: z.object({ items: z.array(attachmentView) }),
  errors: ['sandbox_not_found'],
});

export const attachWorkspace = defineRoute({
  name: 'attachWorkspace',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces',
  summary:
    'Puts a version of a workspace into a running sandbox, as a checkout in which git works. The path must be free, or an empty directory.',
  scope: 'sandboxes:write',
  params: sandboxParams,
  query: none,
  body: attachWanted,
  result: attachmentView,
  status: 201,
  errors: [...errors, ...fileErrors, 'limit_exceeded', 'workspace_in_use'],
});

export const detachWorkspace = defineRoute({
  name: 'detachWorkspace',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace',
  summary: 'Lets a sandbox have a workspace no more. Its files stay, unless `removeFiles` is true.',
  scope: 'sandboxes:write',
  params: attachmentParams,
  query: z.strictObject({ removeFiles: z.enum(['true', 'false']).default('false') }),
  body: none,
  result: none,
  status: 204,
  errors: [...errors, 'file_not_usable'],
});

export const diffAttachment = defineRoute({
  name: 'diffAttachment',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace/diff',
  summary: 'What the sandbox has changed since its base, as of one instant. Nothing is changed by looking.',
  scope: 'sandboxes:read',
  params: attachmentParams,
  query: none,
  body: z.strictObject({ limit: z.int().min(1).max(workspaceLimits.diffFiles).default(1_000) }),
  result: workspaceDiff.extend({
    base: z.object({ number: z.int(), commit: z.string() }),
    tree: z.string(),
    /** What git cannot keep; the first hundred. */
    leftOut: z.array(z.string()),
  }),
  errors: collectErrors,
});

export const patchAttachment = defineRoute({
  name: 'patchAttachment',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace/patch',
  summary: 'What the sandbox has changed since its base, as a patch that `git apply` takes.',
  scope: 'sandboxes:read',
  params: attachmentParams,
  query: none,
  body: none,
  result: none,
  resultKind: 'bytes',
  errors: collectErrors,
});

export const commitAttachment = defineRoute({
  name: 'commitAttachment',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace/commit',
  summary:
    'Publishes what the sandbox has changed as the next version, merged with what others published meanwhile. `nothing`: there was nothing to publish.',
  scope: 'sandboxes:write',
  params: attachmentParams,
  query: none,
  body: z.strictObject({
    message: workspaceMessage.min(1),
    /** Absent: the caller. */
    author: workspaceAuthor.optional(),
    trailers: z.array(workspaceTrailer).max(workspaceLimits.trailers).default([]),
  }),
  result: z.object({
    outcome: z.enum(['committed', 'nothing']),
    version: workspaceVersionView.nullable(),
    /** Against the head that it was put on. */
    counts: z.object({ files: z.int(), insertions: z.int(), deletions: z.int() }),
    leftOut: z.array(z.string()),
  }),
  errors: [...collectErrors, 'workspace_conflict', 'workspace_moved'],
});

export const updateAttachment = defineRoute({
  name: 'updateAttachment',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace/update',
  summary:
    "Merges the newest version into the sandbox's checkout. On a conflict, and when a file changes meanwhile, the sandbox stays as it is.",
  scope: 'sandboxes:write',
  params: attachmentParams,
  query: none,
  body: none,
  result: z.object({
    attachment: attachmentView,
    /** Files that were written or removed. */
    files: z.int(),
  }),
  errors: [...collectErrors, ...fileErrors, 'workspace_conflict'],
});

export const dropAttachment = defineRoute({
  name: 'dropAttachment',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/workspaces/:workspace/drop',
  summary: "Puts the sandbox's checkout back to its base, as a whole: what was added, ignored files too, is gone.",
  scope: 'sandboxes:write',
  params: attachmentParams,
  query: none,
  body: none,
  result: attachmentView,
  errors: [...errors, ...fileErrors],
});
