/** Starts a run whose record is written already, so that afterwards the record tells the truth whatever happened. */
import { isPlatformError } from '../protocol/index.ts';
import type { ProcessEntry } from './process-entry.ts';
import type { ProcessTable } from './process-table.ts';

export interface Started {
  readonly pid: number;
  /** Where it began, if its order alone does not tell. */
  readonly cwd?: string | null;
}

/** What init refused leaves no record. */
export async function startRecorded(
  table: ProcessTable,
  entry: ProcessEntry,
  start: () => Promise<Started>,
): Promise<void> {
  try {
    const { pid, cwd } = await start();
    entry.record = { ...entry.record, pid, cwd: cwd ?? entry.record.cwd };
  } catch (error) {
    // Init refused it, so nothing ran and nothing stays. When nobody knows, init is asked; if it cannot be, the record stays.
    const isOpen = isPlatformError(error, 'outcome_unknown', 'operation_in_doubt');
    if (!isOpen) await table.remove(entry);
    if (!isOpen || !(await table.adopt(entry))) throw error;
  } finally {
    entry.isStarting = false;
  }
}
