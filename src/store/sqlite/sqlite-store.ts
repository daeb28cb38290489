/** The store on two connections. Each work gets tables of its own, which end with it. */
import type { FaultPoints } from '../../base/index.ts';
import { PlatformError, type SandboxId } from '../../protocol/index.ts';
import type { Durability, Readers, SandboxRecord, Store, Tables } from '../store.ts';
import { SqliteBackups } from './backups.ts';
import { SqliteCheckpoints } from './checkpoints.ts';
import type { Connection, Scope } from './connection.ts';
import { SqliteEvents } from './events.ts';
import { SqliteExposures } from './exposures.ts';
import { GroupCommit } from './group-commit.ts';
import { SqliteHistory } from './history.ts';
import { KnownSandboxes } from './known-sandboxes.ts';
import { SqliteLeases } from './leases.ts';
import { SqliteOperations } from './operations.ts';
import { SqlitePlans } from './plans.ts';
import { type OnUnreadable, RowReader } from './readable.ts';
import { SqliteSandboxes } from './sandboxes.ts';
import { SnapshotReads } from './snapshot-reads.ts';
import { SqliteWebhooks } from './webhooks.ts';
import { SqliteKeys, SqliteTeams, SqliteUsers } from './who.ts';
import { SqliteWorkspaces } from './workspaces.ts';

export interface SqliteStoreParts {
  readonly writer: Connection;
  readonly reader: Connection;
  readonly faults: FaultPoints;
  readonly onUnreadable: OnUnreadable;
}

export class SqliteStore implements Store {
  readonly #parts: SqliteStoreParts;
  readonly #writes: GroupCommit;
  readonly #reads: SnapshotReads;
  readonly #known = new KnownSandboxes();
  #closed: Promise<void> | undefined;

  constructor(parts: SqliteStoreParts) {
    this.#parts = parts;
    this.#writes = new GroupCommit({
      connection: parts.writer,
      faults: parts.faults,
      onBatchOver: () => this.#known.settled(),
    });
    this.#reads = new SnapshotReads(parts.reader);
  }

  async transact<Result>(
    work: (tables: Tables) => Promise<Result>,
    options: { readonly durability: Durability } = { durability: 'synced' },
  ): Promise<Result> {
    this.#refuseWhenClosed();
    return this.#writes.run((scope) => work(this.#tables(scope)), options.durability);
  }

  async read<Result>(work: (tables: Readers) => Promise<Result>): Promise<Result> {
    this.#refuseWhenClosed();
    return this.#reads.run((scope) => work(this.#tables(scope)));
  }

  async findSandbox(id: SandboxId): Promise<SandboxRecord | undefined> {
    this.#refuseWhenClosed();
    // Whoever reads meanwhile came before, and is answered before.
    const known = this.#reads.isIdle ? this.#known.get(id) : undefined;
    return known ?? (await this.#reads.run((scope) => this.#learn(scope, id)));
  }

  /** Its one look at the database and what is learnt from it are one step: nothing is committed between the two. */
  async #learn(scope: Scope, id: SandboxId): Promise<SandboxRecord | undefined> {
    const record = this.#sandboxes(scope).findNow(id);
    if (record !== undefined) this.#known.learn(record);
    return record;
  }

  /** What was given before is finished first. */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await Promise.all([this.#writes.idle(), this.#reads.idle()]);
    // The writer last: the last connection to close moves the WAL into the database and removes it.
    this.#parts.reader.close();
    this.#parts.writer.close();
  }

  #refuseWhenClosed(): void {
    if (this.#closed) throw new PlatformError('shutting_down', 'The store is closed.');
  }

  #sandboxes(scope: Scope, rows = new RowReader(this.#parts.onUnreadable)): SqliteSandboxes {
    return new SqliteSandboxes(scope, rows, this.#known);
  }

  #tables(scope: Scope): Tables {
    const rows = new RowReader(this.#parts.onUnreadable);
    return {
      sandboxes: this.#sandboxes(scope, rows),
      operations: new SqliteOperations(scope),
      keys: new SqliteKeys(scope, rows),
      teams: new SqliteTeams(scope),
      users: new SqliteUsers(scope),
      leases: new SqliteLeases(scope, rows),
      events: new SqliteEvents(scope, rows),
      history: new SqliteHistory(scope, rows),
      webhooks: new SqliteWebhooks(scope, rows),
      exposures: new SqliteExposures(scope),
      checkpoints: new SqliteCheckpoints(scope, rows),
      backups: new SqliteBackups(scope),
      plans: new SqlitePlans(scope, rows),
      workspaces: new SqliteWorkspaces(scope, rows),
    };
  }
}
