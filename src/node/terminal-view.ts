/** A terminal's record as NodeApi shows it. */
import { assert } from '../base/index.ts';
import { isId, type NodeTerminal } from '../protocol/index.ts';
import type { ProcessRecord } from './process-record.ts';

export function terminalOf(record: ProcessRecord): NodeTerminal {
  const { processId, generation, name, command, cwd, user, startedAtMs, exit, terminal } = record;
  assert(isId('terminal', processId) && terminal !== undefined);
  return {
    ...{ terminalId: processId, generation, name, cwd, user, startedAtMs, exit, pid: record.pid ?? 0 },
    // An empty one stands for a shell: no order for an empty command is taken.
    command: command.length === 0 ? null : command,
    columns: terminal.columns,
    rows: terminal.rows,
  };
}
