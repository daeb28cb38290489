/** One connection with its prepared statements, and the view of it that one work gets. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { assert } from '../../base/index.ts';
import type { Durability } from '../store.ts';
import { isSqliteError, sqliteCodes, storeError } from './sqlite-errors.ts';

export type Value = string | number | null;

/** Filters make many texts; the ones in use stay prepared. */
const statementsMax = 256;

export class Connection {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  #durability: Durability = 'synced';

  /** `database`: in WAL mode, and its commits are synced. */
  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /** False outside a transaction, and after SQLite itself has rolled one back, as it may when the disk is full. */
  get isTransaction(): boolean {
    return this.#database.isTransaction;
  }

  /** A statement gives its rows always as arrays or always as objects. */
  prepare(sql: string, options: { readonly asArrays?: boolean } = {}): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#database.prepare(sql);
      statement.setReturnArrays(options.asArrays ?? false);
      const [oldest] = this.#statements.keys();
      if (this.#statements.size >= statementsMax && oldest !== undefined) this.#statements.delete(oldest);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  /** For BEGIN, COMMIT and their like. */
  command(sql: string): void {
    try {
      this.prepare(sql).run();
    } catch (error) {
      throw storeError(error);
    }
  }

  /** How commits are made from now on; outside of a transaction. The WAL is one file: whoever syncs it syncs what was written before. */
  commitAs(durability: Durability): void {
    if (durability === this.#durability) return;
    // Not prepared: this one takes effect when it is compiled.
    this.#database.exec(`PRAGMA synchronous = ${durability === 'synced' ? 'FULL' : 'NORMAL'}`);
    this.#durability = durability;
  }

  /** Never throws: it follows a failure that somebody must hear of. If it fails, so does every later BEGIN. */
  rollback(): void {
    try {
      if (this.isTransaction) this.command('ROLLBACK');
    } catch {}
  }

  close(): void {
    this.#statements.clear();
    this.#database.close();
  }
}

/**
 * What one work may do with a connection, from its start to its end.
 *
 * Invariants:
 *  - Statements run only inside the transaction that the work was started in: a work that keeps its tables, or goes on
 *    after SQLite rolled back, is refused rather than heard in somebody else's transaction.
 *  - After a failure of the database itself `failure` is set, whether or not the work caught the error.
 */
export class Scope {
  readonly #connection: Connection;
  #open = true;
  #failure: unknown;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  get failure(): unknown {
    return this.#failure;
  }

  end(): void {
    this.#open = false;
  }

  all<Row>(sql: string, ...values: readonly Value[]): Row[] {
    return this.#use(sql, values, (statement) => statement.all(...values)) as Row[];
  }

  get<Row>(sql: string, ...values: readonly Value[]): Row | undefined {
    return this.#use(sql, values, (statement) => statement.get(...values)) as Row | undefined;
  }

  /** Values in the order of the columns: where there are many rows, objects cost more than reading them. */
  arrays<Row>(sql: string, ...values: readonly Value[]): Row[] {
    return this.#use(sql, values, (statement) => statement.all(...values), { asArrays: true }) as unknown as Row[];
  }

  /** How many rows it changed. */
  run(sql: string, ...values: readonly Value[]): number {
    return Number(this.#use(sql, values, (statement) => statement.run(...values).changes));
  }

  /** The number of the row that it inserted. */
  insert(sql: string, ...values: readonly Value[]): number {
    return Number(this.#use(sql, values, (statement) => statement.run(...values).lastInsertRowid));
  }

  #use<Result>(
    sql: string,
    values: readonly Value[],
    use: (statement: StatementSync) => Result,
    options?: { readonly asArrays: boolean },
  ): Result {
    assert(this.#open, 'The tables of a transaction were used after its end.');
    if (this.#failure !== undefined) throw this.#failure;
    assert(this.#connection.isTransaction, 'A statement was about to run outside its transaction.');
    for (const value of values) assert(isStorable(value), 'Numbers in the store are safe integers.');
    try {
      return use(this.#connection.prepare(sql, options));
    } catch (error) {
      const told = storeError(error);
      if (!isSqliteError(error, sqliteCodes.constraint)) this.#failure = told;
      throw told;
    }
  }
}

/** A number with a fraction, or beyond what is exact, would come back as another one or not at all. */
function isStorable(value: Value): boolean {
  return typeof value !== 'number' || Number.isSafeInteger(value);
}
