/** The routes of checkpoints, pauses, restores, forks and backups, bound in one line each. */
import { routes } from '../protocol/index.ts';
import type { BranchesPort } from './branches-port.ts';
import { sendBytes } from './byte-answer.ts';
import type { Handle } from './route-binding.ts';

const version = (view: { readonly version: number }) => view.version;

export function bindBranches(handle: Handle, control: BranchesPort): void {
  const { pauses, checkpoints, restores, forks, backups } = control;
  handle(
    routes.pauseSandbox,
    ({ caller, params, conditions, body }) => pauses.pause(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(
    routes.resumeSandbox,
    ({ caller, params, conditions, body }) => pauses.resume(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(routes.createCheckpoint, ({ caller, params, conditions, body }) =>
    checkpoints.create(caller, params.sandboxId, conditions, body),
  );
  handle(routes.listCheckpoints, ({ caller, query }) => checkpoints.list(caller, query));
  handle(routes.getCheckpoint, ({ caller, params }) => checkpoints.get(caller, params.checkpointId));
  handle(routes.deleteCheckpoint, ({ caller, params, conditions }) =>
    checkpoints.delete(caller, params.checkpointId, conditions),
  );
  handle(
    routes.restoreSandbox,
    ({ caller, params, conditions, body }) => restores.restore(caller, params.sandboxId, conditions, body),
    { etag: version },
  );
  handle(routes.forkSandbox, ({ caller, params, conditions, body }) =>
    forks.fork(caller, params.sandboxId, conditions, body),
  );
  handle(routes.createBackup, ({ caller, params, conditions, body, exchange }) =>
    backups.create(caller, params.sandboxId, conditions, body, exchange.ending),
  );
  handle(routes.listBackups, ({ caller, query }) => backups.list(caller, query));
  handle(routes.getBackup, ({ caller, params }) => backups.get(caller, params.backupId));
  handle(routes.downloadBackup, async ({ caller, params, exchange }) => {
    const { view, bytes } = await backups.open(caller, params.backupId);
    const headers = { 'Content-Type': 'application/gzip', 'Content-Length': String(view.sizeBytes) };
    return await sendBytes(exchange, bytes, { status: 200, headers });
  });
  handle(routes.restoreBackup, ({ caller, params, conditions, body, exchange }) =>
    backups.restore(caller, params, conditions, body, exchange.ending),
  );
  handle(routes.deleteBackup, ({ caller, params, conditions }) => backups.delete(caller, params.backupId, conditions));
}
