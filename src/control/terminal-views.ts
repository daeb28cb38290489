/** Terminals as callers see them, and cursors, which name their terminal so that one of another is refused. */
import {
  type NodeTerminal,
  PlatformError,
  type SandboxId,
  type TerminalId,
  type TerminalPlace,
  type TerminalView,
} from '../protocol/index.ts';
import { exitViewOf, instantOf } from './process-views.ts';

export function terminalViewOf(found: NodeTerminal, sandboxId: SandboxId): TerminalView {
  const { terminalId, command, exit, startedAtMs, generation, name, pid, cwd, user, columns, rows } = found;
  return {
    ...{ id: terminalId, sandboxId, generation, name, pid, cwd, user, columns, rows },
    command: command === null || typeof command === 'string' ? command : [...command],
    running: exit === null,
    startedAt: instantOf(startedAtMs),
    exit: exit === null ? null : exitViewOf(exit),
  };
}

export function writePlace(terminalId: TerminalId, { cursor, skip }: TerminalPlace): string {
  return `${terminalId}.${cursor}.${skip}`;
}

export function parsePlace(terminalId: TerminalId, cursor: string): TerminalPlace {
  const match = /^(trm[a-z0-9]{20})\.(\d{1,15})\.(\d{1,15})$/.exec(cursor);
  if (match?.[1] === terminalId) return { cursor: Number(match[2]), skip: Number(match[3]) };
  const message =
    match === null ? 'This is not a cursor of a terminal.' : `This cursor is of the terminal ${match[1]}.`;
  throw new PlatformError('invalid_request', message, { details: { path: 'cursor' } });
}
