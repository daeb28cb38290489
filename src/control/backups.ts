/**
 * Backups: a directory of a sandbox as a compressed tar, kept by the server. The archive is written whole under its id before the record is:
 * a record always has its archive, and an archive without a record is left over and removed.
 */
import { createHash } from 'node:crypto';
import { createGunzip, createGzip } from 'node:zlib';
import { through } from '../base/index.ts';
import {
  type BackupId,
  type BackupView,
  type BodyOf,
  backupLimits,
  type Conditions,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
} from '../protocol/index.ts';
import type { BackupRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { parseCursor, writeCursor } from './cursors.ts';
import type { Files } from './files.ts';
import { IgnoreRules } from './ignore-rules.ts';
import type { LeaseGate } from './lease-gate.ts';
import type { Mutations } from './mutations.ts';
import { appendEvents, type SandboxRecords } from './sandbox-records.ts';
import { filterTar, readTarFiles } from './tar-filter.ts';
import type { TeamDisk } from './team-disk.ts';

/** Where archives are kept, by name; the server gives control a directory of its own. */
export interface KeptArchives {
  /** Whole and synced when it resolves; nothing is left of one that fails. */
  write(name: string, bytes: AsyncIterable<Uint8Array>): Promise<{ readonly sizeBytes: number }>;
  read(name: string): Promise<AsyncIterable<Uint8Array>>;
  /** Of an unknown one: succeeds. */
  remove(name: string): Promise<void>;
  /** Names, and when each was written. */
  list(): Promise<readonly { readonly name: string; readonly writtenAtMs: number }[]>;
}

interface BackupParts {
  readonly records: SandboxRecords;
  readonly mutations: Mutations;
  readonly gate: LeaseGate;
  readonly files: Files;
  readonly disk: TeamDisk;
  readonly archives: KeptArchives;
}

type CreateBody = BodyOf<typeof routes.createBackup>;

/** An archive without a record is left alone for this long: somebody may be about to record it. */
const youngMs = 10 * 60_000;
const pageSize = 1_000;

export class Backups {
  readonly #context: ControlContext;
  readonly #parts: BackupParts;

  constructor(context: ControlContext, parts: BackupParts) {
    this.#context = context;
    this.#parts = parts;
  }

  create(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: CreateBody,
    signal: AbortSignal,
  ): Promise<BackupView> {
    const { mutations, gate } = this.#parts;
    const make = (id: BackupId) =>
      gate.pass(sandboxId, conditions, () => this.#create(caller, { id, sandboxId, conditions, body }, signal));
    return mutations.run({
      caller,
      kind: 'createBackup',
      conditions,
      request: { sandboxId, body },
      subject: () => newId('backup', this.#context.random),
      effect: ({ subjectId }) => make(subjectId as BackupId),
      resume: async ({ subjectId }) => {
        const id = subjectId as BackupId;
        const found = await this.#context.store.read((tables) => tables.backups.find(id));
        return found === undefined ? await make(id) : viewOf(found);
      },
    });
  }

  async #create(
    caller: Caller,
    asked: { id: BackupId; sandboxId: SandboxId; conditions: Conditions; body: CreateBody },
    signal: AbortSignal,
  ): Promise<BackupView> {
    const { store, clock, faults, events } = this.#context;
    const { records, disk, archives } = this.#parts;
    const { id, sandboxId, conditions, body } = asked;
    await records.checkLease(await records.get(caller, sandboxId), conditions);
    await disk.admit(caller.teamId, 0);
    await this.#checkRoom(caller);
    const nowMs = clock.nowMs();
    const digest = createHash('sha256');
    const tar = await this.#tarOf(caller, asked, signal);
    const { sizeBytes } = await archives.write(id, measured(through(tar, createGzip()), digest));
    try {
      await faults.hit('after-backup-written');
      const record: BackupRecord = {
        ...{ id, teamId: caller.teamId, sandboxId, path: body.path, name: body.name ?? null, sizeBytes },
        digest: digest.digest('hex'),
        createdAtMs: nowMs,
        createdBy: caller.keyId,
        expiresAtMs: body.expiresInMs === null ? null : nowMs + body.expiresInMs,
      };
      await store.transact(async (tables) => {
        await tables.backups.insert(record);
        const sandbox = await tables.sandboxes.find(sandboxId);
        const data = { backupId: id, path: body.path, sizeBytes };
        if (sandbox !== undefined) await appendEvents(tables, sandbox, [{ kind: 'backup.created', data }]);
      });
      events.notify();
      return viewOf(record);
    } catch (error) {
      await archives.remove(id);
      throw error;
    }
  }

  /** Rules are read in a first pass, because a directory's `.gitignore` may come behind what it names. */
  async #tarOf(
    caller: Caller,
    asked: { sandboxId: SandboxId; conditions: Conditions; body: CreateBody },
    signal: AbortSignal,
  ): Promise<AsyncIterable<Uint8Array>> {
    const { sandboxId, conditions, body } = asked;
    const query = { path: body.path, ...(body.user !== undefined && { user: body.user }) };
    const read = async () => (await this.#parts.files.downloadTree(caller, sandboxId, conditions, query, signal)).bytes;
    if (!body.gitignore) return await read();
    const { ignoreFiles: files, ignoreFileBytes: bytes } = backupLimits;
    const texts = await readTarFiles(await read(), { isWanted: isIgnoreFile, files, bytes });
    const rules = new IgnoreRules(texts);
    return filterTar(await read(), (path, isDirectory) => !rules.isIgnored(path, isDirectory));
  }

  async get(caller: Caller, id: BackupId): Promise<BackupView> {
    return viewOf(await this.#get(caller, id));
  }

  async list(caller: Caller, query: QueryOf<typeof routes.listBackups>): Promise<ResultOf<typeof routes.listBackups>> {
    const { sandboxId, cursor, limit } = query;
    const after = cursor === undefined ? undefined : parseCursor('backup', cursor);
    const filter = { teamId: caller.teamId, ...(sandboxId !== undefined && { sandboxId }) };
    const found = await this.#context.store.read((tables) =>
      tables.backups.list(filter, { limit: limit + 1, ...(after && { after }) }),
    );
    const shown = found.slice(0, limit);
    const last = shown.at(-1);
    const nextCursor = found.length > limit && last !== undefined ? writeCursor(last) : null;
    const nowMs = this.#context.clock.nowMs();
    return { items: shown.filter((one) => !isPast(one, nowMs)).map(viewOf), nextCursor };
  }

  /** The archive as it is kept. */
  async open(
    caller: Caller,
    id: BackupId,
  ): Promise<{ readonly view: BackupView; readonly bytes: AsyncIterable<Uint8Array> }> {
    const view = viewOf(await this.#get(caller, id));
    return { view, bytes: await this.#parts.archives.read(id) };
  }

  async restore(
    caller: Caller,
    params: { readonly sandboxId: SandboxId; readonly backupId: BackupId },
    conditions: Conditions,
    body: BodyOf<typeof routes.restoreBackup>,
    signal: AbortSignal,
  ): Promise<ResultOf<typeof routes.restoreBackup>> {
    const { sandboxId, backupId } = params;
    return await this.#parts.mutations.run({
      caller,
      kind: 'restoreBackup',
      conditions,
      request: { params, body },
      // What is unpacked again is the same again.
      effect: async () => {
        const { bytes } = await this.open(caller, backupId);
        const { idempotencyKey: _, ...unkeyed } = conditions;
        const tar = through(bytes, createGunzip());
        const query = { path: body.path, ...(body.user !== undefined && { user: body.user }) };
        return await this.#parts.files.uploadTree(caller, sandboxId, unkeyed, query, tar, signal);
      },
    });
  }

  async delete(caller: Caller, id: BackupId, conditions: Conditions): Promise<void> {
    await this.#parts.mutations.run({
      caller,
      kind: 'deleteBackup',
      conditions,
      request: { id },
      effect: async () => {
        await this.#get(caller, id);
        await this.#remove(id);
      },
      resume: () => this.#remove(id),
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** Removes what is past its time, and archives that nobody recorded. */
  async tick(): Promise<void> {
    const { store, clock } = this.#context;
    const nowMs = clock.nowMs();
    const past = await store.read((tables) => tables.backups.list({ expiredAtMs: nowMs }, { limit: pageSize }));
    for (const { id } of past) await this.#remove(id);
    for (const { name, writtenAtMs } of await this.#parts.archives.list()) {
      if (writtenAtMs > nowMs - youngMs) continue;
      const found = await store.read((tables) => tables.backups.find(name as BackupId));
      if (found === undefined) await this.#parts.archives.remove(name);
    }
  }

  /** The record first: what has none is left over. */
  async #remove(id: BackupId): Promise<void> {
    await this.#context.store.transact((tables) => tables.backups.remove(id));
    await this.#parts.archives.remove(id);
  }

  async #checkRoom({ teamId }: Caller): Promise<void> {
    const count = await this.#context.store.read((tables) => tables.backups.count(teamId));
    if (count < backupLimits.backups) return;
    throw new PlatformError('limit_exceeded', `A team has at most ${backupLimits.backups} backups.`);
  }

  async #get(caller: Caller, id: BackupId): Promise<BackupRecord> {
    const found = await this.#context.store.read((tables) => tables.backups.find(id));
    const isThere = found?.teamId === caller.teamId && !isPast(found, this.#context.clock.nowMs());
    // A token of one sandbox does not get at the files of another through a backup.
    if (isThere && (caller.sandboxId === null || caller.sandboxId === found.sandboxId)) return found;
    throw new PlatformError('backup_not_found', `There is no backup ${id} in this team, or it has expired.`);
  }
}

function isIgnoreFile(path: string): boolean {
  return path === '.gitignore' || path.endsWith('/.gitignore');
}

function isPast({ expiresAtMs }: BackupRecord, nowMs: number): boolean {
  return expiresAtMs !== null && expiresAtMs <= nowMs;
}

async function* measured(
  bytes: AsyncIterable<Uint8Array>,
  digest: { update(bytes: Uint8Array): unknown },
): AsyncGenerator<Uint8Array> {
  let size = 0;
  for await (const chunk of bytes) {
    size += chunk.byteLength;
    if (size > backupLimits.bytes) {
      throw new PlatformError('limit_exceeded', `A backup has at most ${backupLimits.bytes} bytes.`);
    }
    digest.update(chunk);
    yield chunk;
  }
}

function viewOf(record: BackupRecord): BackupView {
  const { id, sandboxId, path, name, sizeBytes, digest, createdBy } = record;
  return {
    ...{ id, sandboxId, path, name, sizeBytes, digest, createdBy },
    createdAt: new Date(record.createdAtMs).toISOString(),
    expiresAt: record.expiresAtMs === null ? null : new Date(record.expiresAtMs).toISOString(),
  };
}
