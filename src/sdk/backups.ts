/** Backups: directories of sandboxes as archives that the server keeps. */
import {
  type BackupView,
  type BodyInputOf,
  PlatformError,
  type QueryInputOf,
  type ResultOf,
  routes,
} from '../protocol/index.ts';
import type { CallOptions, Connection } from './connection.ts';
import type { SandboxBinding } from './processes.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
export type BackupPage = ResultOf<Routes['listBackups']>;
export type CreateBackupOptions = Omit<BodyInputOf<Routes['createBackup']>, 'path'> & CallOptions;
export type RestoreBackupOptions = Omit<BodyInputOf<Routes['restoreBackup']>, 'path'> & CallOptions;
export type ListBackupsOptions = QueryInputOf<Routes['listBackups']> & Look;

export class SandboxBackups {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** Keeps a directory as an archive; a failure leaves nothing. */
  create(path: string, options: CreateBackupOptions = {}): Promise<BackupView> {
    const { name, gitignore, expiresInMs, user, ...call } = options;
    const { connection, sandboxId, bound } = this.#binding;
    const body = {
      path,
      ...(name !== undefined && { name }),
      ...(gitignore !== undefined && { gitignore }),
      ...(expiresInMs !== undefined && { expiresInMs }),
      ...(user !== undefined && { user }),
    };
    return connection.call(routes.createBackup, { params: { sandboxId }, ...bound(call), body, timeoutMs: null });
  }

  /** Unpacks a backup, of this sandbox or of another, into a directory, which is made if it is missing. */
  restore(
    backupId: string,
    path: string,
    options: RestoreBackupOptions = {},
  ): Promise<ResultOf<Routes['restoreBackup']>> {
    const { user, ...call } = options;
    const { connection, sandboxId, bound } = this.#binding;
    return connection.call(routes.restoreBackup, {
      params: { sandboxId, backupId },
      ...bound(call),
      body: { path, ...(user !== undefined && { user }) },
      timeoutMs: null,
    });
  }

  /** One page, newest first. */
  list(options: Omit<ListBackupsOptions, 'sandboxId'> = {}): Promise<BackupPage> {
    return new Backups(this.#binding.connection).list({ ...options, sandboxId: this.#binding.sandboxId });
  }
}

export class Backups {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** One page, newest first; those of sandboxes that are gone too. */
  list(options: ListBackupsOptions = {}): Promise<BackupPage> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listBackups, { query, ...(signal && { signal }) });
  }

  get(backupId: string, options: Look = {}): Promise<BackupView> {
    return this.#connection.call(routes.getBackup, { params: { backupId }, ...options });
  }

  /** The archive: a tar, compressed with gzip. */
  async download(backupId: string, options: Look = {}): Promise<ReadableStream<Uint8Array>> {
    const request = { params: { backupId }, ...options, timeoutMs: null };
    const { body } = await this.#connection.open(routes.downloadBackup, request);
    if (body === null) throw new PlatformError('server_unreachable', `The archive of ${backupId} broke off.`);
    return body;
  }

  async delete(backupId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.deleteBackup, { params: { backupId }, ...options });
  }
}
