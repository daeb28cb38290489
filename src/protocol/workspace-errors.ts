/** The rows of the error catalog that are about workspaces. */
import type { ErrorSpec } from './errors.ts';

export const workspaceErrors = {
  workspace_not_found: {
    status: 404,
    retry: 'never',
    meaning: 'No such workspace, version or attachment in this team.',
  },
  workspace_wrong_state: {
    status: 409,
    retry: 'never',
    meaning: 'The workspace is still being made or is being deleted.',
  },
  workspace_moved: {
    status: 409,
    retry: 'never',
    meaning: 'The workspace has a newer version than the one this was based on; nothing was changed.',
  },
  workspace_conflict: {
    status: 409,
    retry: 'never',
    meaning: 'Both sides changed the same; the details list every conflict. Nothing was changed.',
  },
  workspace_in_use: {
    status: 409,
    retry: 'never',
    meaning: 'Sandboxes or a plan still use the workspace; the details name them.',
  },
  workspace_unsafe: {
    status: 422,
    retry: 'never',
    meaning:
      'The content holds what a workspace never takes (paths into git, damaged objects, too much); nothing of it is kept.',
  },
  workspace_remote_failed: {
    status: 502,
    retry: 'backoff',
    meaning: 'The git remote could not be reached, refused, or has no such ref; nothing was changed here.',
  },
  workspace_remote_moved: {
    status: 409,
    retry: 'never',
    meaning: 'The branch of the remote has commits that the workspace does not have; it was not changed.',
  },
} as const satisfies Record<string, ErrorSpec>;
