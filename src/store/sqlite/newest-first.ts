/** Pages of a table, the newest first: of what a filter asks for, what comes behind the last of the page before. */
import type { Value } from './connection.ts';

export type Condition = readonly [sql: string, ...values: Value[]];

/** What the connection is asked: the text, then its values. */
export function newestFirst(
  selectSql: string,
  conditions: readonly Condition[],
  page: { readonly after: { readonly createdAtMs: number; readonly id: string } | undefined; readonly limit: number },
): readonly [sql: string, ...values: Value[]] {
  const { after, limit } = page;
  const behind: Condition[] = after ? [['(created_at_ms, id) < (?, ?)', after.createdAtMs, after.id]] : [];
  const where = joinConditions([...conditions, ...behind]);
  return [`${selectSql}${where.sql} ORDER BY created_at_ms DESC, id DESC LIMIT ?`, ...where.values, limit];
}

export function joinConditions(conditions: readonly Condition[]): { readonly sql: string; readonly values: Value[] } {
  const sql = conditions.map(([text]) => text).join(' AND ');
  return { sql: sql === '' ? '' : ` WHERE ${sql}`, values: conditions.flatMap(([, ...values]) => values) };
}
