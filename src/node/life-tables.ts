/**
 * The tables of one kind, processes, terminals or sessions, of a node's sandboxes. They are opened when they are first asked for and belong to
 * one life.
 *
 * Invariant: one table a life. Whoever asks while it is being opened shares the opening.
 */
import type { Clock, Logger } from '../base/index.ts';
import type { InitClient } from '../execution/index.ts';
import type { LifeOrder, SandboxId } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { refuseOlderLife } from './order-rules.ts';

export interface SandboxHold {
  readonly record: NodeRecord;
  readonly client: InitClient | undefined;
  readonly directory: string;
}

/** What the surfaces of a node's sandboxes work with. */
export interface SurfaceOptions {
  /** Refuses a sandbox that is not here. */
  readonly get: (sandboxId: SandboxId) => SandboxHold;
  readonly clock: Clock;
  readonly log: Logger;
  readonly removeTree: (path: string) => Promise<void>;
}

/** Whose life it is: where its records are, and init, or `undefined` when the life is over. */
export interface TableOwner extends Pick<SandboxHold, 'directory' | 'client'> {
  readonly sandboxId: SandboxId;
  readonly generation: number;
}

interface LifeTable {
  endLife(): Promise<void>;
  close(): Promise<void>;
}

interface LifeTablesOptions<Table extends LifeTable> extends Pick<SurfaceOptions, 'get'> {
  readonly open: (owner: TableOwner) => Promise<Table>;
  /** Whether a life left records. */
  readonly hasRecords: (directory: string) => Promise<boolean>;
}

export class LifeTables<Table extends LifeTable> {
  readonly #options: LifeTablesOptions<Table>;
  readonly #tables = new Map<SandboxId, { readonly generation: number; readonly table: Promise<Table> }>();

  constructor(options: LifeTablesOptions<Table>) {
    this.#options = options;
  }

  get(order: LifeOrder): Promise<Table> {
    const { sandboxId } = order;
    const { record, client, directory } = this.#options.get(sandboxId);
    refuseOlderLife(record, order);
    const { generation } = record;
    const known = this.#tables.get(sandboxId);
    if (known?.generation === generation) return known.table;
    const table = this.forget(sandboxId).then(() => this.#options.open({ sandboxId, generation, directory, client }));
    this.#tables.set(sandboxId, { generation, table });
    // One that could not be opened is tried again by the next who asks.
    table.catch(() => {
      if (this.#tables.get(sandboxId)?.table === table) this.#tables.delete(sandboxId);
    });
    return table;
  }

  /** Opens the table of a life that left records. */
  async resume(order: LifeOrder): Promise<void> {
    if (await this.#options.hasRecords(this.#options.get(order.sandboxId).directory)) await this.get(order);
  }

  /** The life is over, and init with it. */
  async lifeEnded(sandboxId: SandboxId): Promise<void> {
    const open = this.#tables.get(sandboxId);
    await (await open?.table.catch(() => undefined))?.endLife();
  }

  /** Another life begins, or the sandbox is deleted. */
  async forget(sandboxId: SandboxId): Promise<void> {
    const open = this.#tables.get(sandboxId);
    this.#tables.delete(sandboxId);
    await (await open?.table.catch(() => undefined))?.close();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#tables.keys()].map((sandboxId) => this.forget(sandboxId)));
  }
}
