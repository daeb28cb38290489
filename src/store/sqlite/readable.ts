/**
 * From rows to records. A record that cannot be read is reported and left out of lists, so that one damaged record hides
 * only itself; asked for by name, it is an error.
 */
import { assert } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';

export type OnUnreadable = (table: string, id: string, error: unknown) => void;

/** How one table's rows are read. `parse` throws on what is no record. */
export interface RowShape<Row, Item> {
  readonly table: string;
  id(row: Row): string;
  parse(row: Row): Item;
}

export class RowReader {
  readonly #onUnreadable: OnUnreadable;

  constructor(onUnreadable: OnUnreadable) {
    this.#onUnreadable = onUnreadable;
  }

  one<Row, Item>(shape: RowShape<Row, Item>, row: Row | undefined): Item | undefined {
    if (row === undefined) return undefined;
    try {
      return shape.parse(row);
    } catch (error) {
      this.#onUnreadable(shape.table, shape.id(row), error);
      const message = `The record ${shape.id(row)} in ${shape.table} cannot be read.`;
      throw new PlatformError('internal', message, { cause: error });
    }
  }

  many<Row, Item>(shape: RowShape<Row, Item>, rows: readonly Row[]): Item[] {
    const items: Item[] = [];
    for (const row of rows) {
      try {
        items.push(shape.parse(row));
      } catch (error) {
        this.#onUnreadable(shape.table, shape.id(row), error);
      }
    }
    return items;
  }

  /** A page is short only at the end of the list: what cannot be read is made up for from the rows behind it. */
  page<Row, Item>(shape: RowShape<Row, Item>, query: PageQuery<Row>): Item[] {
    assert(Number.isSafeInteger(query.limit) && query.limit > 0, 'A page has a limit above zero.');
    const items: Item[] = [];
    let last: Row | undefined;
    while (items.length < query.limit) {
      const wanted = query.limit - items.length;
      const rows = query.fetch(last, wanted);
      items.push(...this.many(shape, rows));
      if (rows.length < wanted) break;
      last = rows.at(-1);
    }
    return items;
  }
}

export interface PageQuery<Row> {
  readonly limit: number;
  /** The next rows behind `last`, or the first ones. */
  fetch(last: Row | undefined, limit: number): Row[];
}
