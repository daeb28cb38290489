/** Branches of a control in memory, for tests of what stands before it: each call is written down and answered with something plausible. */
import type { BackupView, CheckpointView, SandboxView } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/index.ts';
import { testId } from './fake-control.ts';

type Branches = Pick<ControlPort, 'pauses' | 'checkpoints' | 'restores' | 'forks' | 'backups'>;
const aDay = '2030-01-01T00:00:00.000Z';

export const testCheckpoint: CheckpointView = {
  id: 'chka0000000000000000000' as CheckpointView['id'],
  sandboxId: 'sbxa0000000000000000000' as CheckpointView['sandboxId'],
  name: null,
  state: 'ready',
  generation: 1,
  template: 'host',
  metadata: {},
  sizeBytes: 4_096,
  frozenMs: 1,
  createdAt: aDay,
  createdBy: 'keya0000000000000000000' as CheckpointView['createdBy'],
  expiresAt: null,
};

export const testBackup: BackupView = {
  id: 'bkpa0000000000000000000' as BackupView['id'],
  sandboxId: testCheckpoint.sandboxId,
  path: '/workspace',
  name: null,
  sizeBytes: 3,
  digest: '0'.repeat(64),
  createdAt: aDay,
  createdBy: testCheckpoint.createdBy,
  expiresAt: null,
};

export function fakeControlBranches(parts: {
  readonly note: (method: string, ...args: readonly unknown[]) => void;
  readonly change: (sandboxId: string, change: Partial<SandboxView>) => SandboxView;
}): Branches {
  const { note, change } = parts;
  const noted =
    <Args extends readonly unknown[], Result>(method: string, answer: (...args: Args) => Result) =>
    async (...args: Args): Promise<Result> => {
      note(method, ...args);
      return answer(...args);
    };
  const page = <Item>(item: Item) => ({ items: [item], nextCursor: null });
  return {
    pauses: {
      pause: noted('pause', (_caller, sandboxId, _conditions, { mode }) =>
        change(sandboxId, {
          state: 'paused',
          paused: { mode: mode === 'files' ? 'files' : 'memory', since: aDay, leftMs: null },
        }),
      ),
      resume: noted('resume', (_caller, sandboxId) => change(sandboxId, { state: 'running', paused: null })),
    },
    checkpoints: {
      create: noted('createCheckpoint', (_caller, _id, _conditions, { name }) => ({
        ...testCheckpoint,
        name: name ?? null,
      })),
      list: noted('listCheckpoints', () => page(testCheckpoint)),
      get: noted('getCheckpoint', () => testCheckpoint),
      delete: noted('deleteCheckpoint', () => undefined),
    },
    restores: { restore: noted('restore', (_caller, sandboxId) => change(sandboxId, { generation: 2 })) },
    forks: {
      fork: noted('fork', (_caller, sandboxId) => {
        const error = { code: 'limit_exceeded', message: 'There is no room.', details: {} };
        const sandbox = { ...change(sandboxId, {}), id: testId('sandbox', 'forked') };
        return {
          items: [
            { sandbox, error: null },
            { sandbox: null, error },
          ],
        };
      }),
    },
    backups: {
      create: noted('createBackup', (_caller, _id, _conditions, { path }) => ({ ...testBackup, path })),
      list: noted('listBackups', () => page(testBackup)),
      get: noted('getBackup', () => testBackup),
      open: noted('openBackup', () => ({ view: testBackup, bytes: bytesOf('tar') })),
      restore: noted('restoreBackup', () => ({ bytes: 3 })),
      delete: noted('deleteBackup', () => undefined),
    },
  };
}

async function* bytesOf(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
