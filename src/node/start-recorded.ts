/** Starts a run whose record is written already, so that afterwards the record tells the truth whatever happened. */
import { isPlatformError } from '../protocol/index.ts';
import type { ProcessEntry } from './process-entry.ts';
import type { ProcessTable } from './process-table.ts';

/** `start` answers with the pid. What init refused leaves no record. */
export async function startRecorded(
  table: ProcessTable,
  entry: ProcessEntry,
  start: () => Promise<number>,
): Promise<void> {
  try {
    const pid = await start();
    entry.record = { ...entry.record, pid };
  } catch (error) {
    // Init refused it, so nothing ran and nothing stays. When nobody knows, init is asked; if it cannot be, the record stays.
    const isOpen = isPlatformError(error, 'outcome_unknown', 'operation_in_doubt');
    if (!isOpen) await table.remove(entry);
    if (!isOpen || !(await table.adopt(entry))) throw error;
  }
}
