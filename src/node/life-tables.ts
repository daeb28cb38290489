/**
 * The tables of one kind, processes or terminals, of a node's sandboxes. They are opened when they are first asked for and belong to one life.
 *
 * Invariant: one table a life. Whoever asks while it is being opened shares the opening.
 */
import type { Clock, Logger } from '../base/index.ts';
import type { InitClient } from '../execution/index.ts';
import type { LifeOrder, SandboxId } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { refuseOlderLife } from './order-rules.ts';
import { hasProcesses, type RunKind } from './process-record.ts';
import { ProcessTable, type TableOptions } from './process-table.ts';

export interface SandboxHold {
  readonly record: NodeRecord;
  readonly client: InitClient | undefined;
  readonly directory: string;
}

export interface LifeTablesOptions {
  /** Refuses a sandbox that is not here. */
  readonly get: (sandboxId: SandboxId) => SandboxHold;
  readonly clock: Clock;
  readonly log: Logger;
  readonly removeTree: (path: string) => Promise<void>;
}

export interface TableKind extends Pick<TableOptions, 'retention'> {
  readonly kind: RunKind;
  /** What is due for what was found. */
  readonly onOpen: (table: ProcessTable, order: LifeOrder) => void;
}

export class LifeTables {
  readonly #options: LifeTablesOptions;
  readonly #kind: TableKind;
  readonly #tables = new Map<SandboxId, { readonly generation: number; readonly table: Promise<ProcessTable> }>();

  constructor(options: LifeTablesOptions, kind: TableKind) {
    this.#options = options;
    this.#kind = kind;
  }

  get(order: LifeOrder): Promise<ProcessTable> {
    const { record, client, directory } = this.#options.get(order.sandboxId);
    refuseOlderLife(record, order);
    const { generation } = record;
    const open = this.#tables.get(order.sandboxId);
    if (open?.generation === generation) return open.table;
    const { clock, log, removeTree } = this.#options;
    const { onOpen, ...kind } = this.#kind;
    const table = this.forget(order.sandboxId).then(async () => {
      const opened = await ProcessTable.open({ ...kind, directory, generation, client, clock, log, removeTree });
      onOpen(opened, { sandboxId: order.sandboxId, generation });
      return opened;
    });
    this.#tables.set(order.sandboxId, { generation, table });
    // One that could not be opened is tried again by the next who asks.
    table.catch(() => {
      if (this.#tables.get(order.sandboxId)?.table === table) this.#tables.delete(order.sandboxId);
    });
    return table;
  }

  /** Opens the table of a life that left records. */
  async resume(order: LifeOrder): Promise<void> {
    if (await hasProcesses(this.#options.get(order.sandboxId).directory, this.#kind.kind)) await this.get(order);
  }

  async lifeEnded(sandboxId: SandboxId): Promise<void> {
    const open = this.#tables.get(sandboxId);
    await (await open?.table.catch(() => undefined))?.endLife();
  }

  async forget(sandboxId: SandboxId): Promise<void> {
    const open = this.#tables.get(sandboxId);
    this.#tables.delete(sandboxId);
    await (await open?.table.catch(() => undefined))?.close();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#tables.keys()].map((sandboxId) => this.forget(sandboxId)));
  }
}
