/** Workspaces of a control in memory, for tests of what stands before it: each call is written down and answered with something plausible. */
import type { AttachmentView, WorkspaceVersionView, WorkspaceView } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/index.ts';

type Workspaces = Pick<ControlPort, 'workspaces' | 'versions' | 'attachments' | 'attachmentChanges'>;
const aDay = '2030-01-01T00:00:00.000Z';
const commit = 'c'.repeat(40);
const counts = { files: 1, insertions: 2, deletions: 3 };

export const testWorkspace: WorkspaceView = {
  id: 'wspa0000000000000000000' as WorkspaceView['id'],
  name: 'site',
  state: 'ready',
  head: { number: 2, commit },
  nodeId: 'noda0000000000000000000' as WorkspaceView['nodeId'],
  version: 3,
  createdAt: aDay,
  createdBy: 'keya0000000000000000000' as WorkspaceView['createdBy'],
  updatedAt: aDay,
};

export const testVersion: WorkspaceVersionView = {
  workspaceId: testWorkspace.id,
  number: 2,
  commit,
  kind: 'commit',
  summary: 'The second',
  author: 'Somebody <somebody@example.com>',
  sandboxId: null,
  planId: null,
  createdAt: aDay,
  createdBy: testWorkspace.createdBy,
};

export const testAttachment: AttachmentView = {
  sandboxId: 'sbxa0000000000000000000' as AttachmentView['sandboxId'],
  workspaceId: testWorkspace.id,
  workspace: testWorkspace.name,
  path: '/workspace/site',
  base: { number: 2, commit },
  isCurrent: true,
  attachedAt: aDay,
  attachedBy: testWorkspace.createdBy,
};

export const testChange = {
  ...{ path: 'a.txt', pathBase64: null, kind: 'modified' as const, from: null, modeBefore: '100644' },
  ...{ modeAfter: '100644', insertions: 2, deletions: 3 },
};

export function fakeControlWorkspaces(parts: {
  readonly note: (method: string, ...args: readonly unknown[]) => void;
}): Workspaces {
  const noted =
    <Args extends readonly unknown[], Result>(method: string, answer: (...args: Args) => Result) =>
    async (...args: Args): Promise<Awaited<Result>> => {
      parts.note(method, ...args);
      return await answer(...args);
    };
  const diff = { counts, files: [testChange], hasMore: false };
  return {
    workspaces: {
      create: noted('createWorkspace', (_caller, _conditions, { name }) => ({ ...testWorkspace, name })),
      list: noted('listWorkspaces', () => ({ items: [testWorkspace], nextCursor: null })),
      get: noted('getWorkspace', () => ({ ...testWorkspace, attachments: [testAttachment] })),
      delete: noted('deleteWorkspace', () => undefined),
      versions: noted('listWorkspaceVersions', () => ({ items: [testVersion], nextBefore: null })),
      version: noted('getWorkspaceVersion', () => ({
        ...testVersion,
        ...{ message: 'The second\n', tree: commit, parents: [] },
      })),
      diff: noted('diffWorkspace', () => diff),
      patch: noted('patchWorkspace', () => ({ bytes: bytesOf('diff --git a b\n') })),
      blob: noted('readWorkspaceBlob', () => ({ bytes: bytesOf('a blob') })),
      revert: noted('revertWorkspace', () => ({ ...testVersion, kind: 'revert' as const })),
    },
    versions: {
      importBytes: noted('importWorkspace', async (_caller, _workspace, _conditions, _query, bytes) => {
        let size = 0;
        for await (const chunk of bytes) size += chunk.byteLength;
        return { ...testVersion, kind: 'import' as const, summary: `${size} bytes` };
      }),
      importRemote: noted('importWorkspaceRemote', () => ({ ...testVersion, kind: 'import' as const })),
      push: noted('pushWorkspace', () => ({ number: 2, commit })),
      export: noted('exportWorkspace', () => ({ bytes: bytesOf('an export') })),
    },
    attachments: {
      list: noted('listAttachments', () => ({ items: [testAttachment] })),
      attach: noted('attachWorkspace', () => testAttachment),
      detach: noted('detachWorkspace', () => undefined),
      drop: noted('dropAttachment', () => testAttachment),
    },
    attachmentChanges: {
      diff: noted('diffAttachment', () => ({ ...diff, base: testAttachment.base, tree: commit, leftOut: [] })),
      patch: noted('patchAttachment', () => ({ bytes: bytesOf('diff --git a b\n') })),
      commit: noted('commitAttachment', () => ({
        ...{ outcome: 'committed' as const, version: testVersion, counts, leftOut: [] },
      })),
      update: noted('updateAttachment', () => ({ attachment: testAttachment, files: 1 })),
    },
  };
}

async function* bytesOf(text: string): AsyncGenerator<Uint8Array, void> {
  yield new TextEncoder().encode(text);
}
