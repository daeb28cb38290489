/** Processes as callers see them: cursors that belong to one process, signals by name, bytes as text. */
import { constants } from 'node:os';
import {
  type NodeProcess,
  PlatformError,
  type ProcessExit,
  type ProcessId,
  type ProcessItem,
  type ProcessOutputItem,
  type ProcessView,
  type SandboxId,
} from '../protocol/index.ts';

export type OutputEncoding = 'utf8' | 'base64';

export function processViewOf(found: NodeProcess, sandboxId: SandboxId): ProcessView {
  const { processId, command, exit, treeEndedAtMs, output } = found;
  return {
    id: processId,
    name: found.name,
    sandboxId,
    generation: found.generation,
    pid: found.pid,
    command: typeof command === 'string' ? command : [...command],
    cwd: found.cwd,
    user: found.user,
    sessionId: found.sessionId,
    running: treeEndedAtMs === null,
    startedAt: instantOf(found.startedAtMs),
    exit: exit === null ? null : exitViewOf(exit),
    treeEndedAt: treeEndedAtMs === null ? null : instantOf(treeEndedAtMs),
    output: { first: writeOutputCursor(processId, output.first), end: writeOutputCursor(processId, output.end) },
    stdinOpen: found.stdinOpen,
  };
}

/** An item with the position that its cursor stands for; its bytes become text only where text is sent. */
export type FollowedItem = { readonly position: number; readonly cursor: string } & (
  | { readonly kind: 'output'; readonly stream: 'stdout' | 'stderr'; readonly bytes: Uint8Array }
  | { readonly kind: 'dropped'; readonly bytes: number }
  | { readonly kind: 'exited'; readonly exit: ExitView }
  | { readonly kind: 'ended' }
);
type ExitView = NonNullable<ProcessView['exit']>;

/** A start whose output is followed: the process, then what it says. */
export type StartedItem =
  | { readonly kind: 'process'; readonly process: ProcessView; readonly position: number; readonly cursor: string }
  | FollowedItem;

export function followedItemOf(item: ProcessItem, processId: ProcessId): FollowedItem {
  const place = { position: item.cursor, cursor: writeOutputCursor(processId, item.cursor) };
  return item.kind === 'exited' ? { kind: 'exited', exit: exitViewOf(item.exit), ...place } : { ...item, ...place };
}

export function itemViewOf(item: FollowedItem, encoding: OutputEncoding): ProcessOutputItem {
  const { position: _, ...shown } = item;
  if (shown.kind !== 'output') return shown;
  const { bytes, stream, cursor } = shown;
  const data = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString(encoding);
  return { kind: 'output', stream, data, encoding, cursor };
}

/** A cursor names its process, so that one of another process is refused instead of read as a place in this one. */
export function writeOutputCursor(processId: ProcessId, position: number): string {
  return `${processId}.${position}`;
}

export function parseOutputCursor(processId: ProcessId, cursor: string): number {
  const match = /^(prc[a-z0-9]{20})\.(\d{1,15})$/.exec(cursor);
  if (match?.[1] === processId) return Number(match[2]);
  const message = match === null ? 'This is not a cursor of output.' : `This cursor is of the process ${match[1]}.`;
  throw new PlatformError('invalid_request', message, { details: { path: 'cursor' } });
}

/** As `kill` takes it: a number, `TERM`, `SIGTERM`, `RTMIN+3`. */
export function parseSignal(signal: string | number): number {
  if (typeof signal === 'number') return signal;
  const name = signal.startsWith('SIG') ? signal : `SIG${signal}`;
  const realTime = /^SIGRTMIN(?:\+(\d{1,2}))?$/.exec(name);
  if (realTime !== null && Number(realTime[1] ?? 0) <= 30) return 34 + Number(realTime[1] ?? 0);
  const number = (constants.signals as Record<string, number | undefined>)[name];
  if (number !== undefined) return number;
  throw new PlatformError('invalid_request', `There is no signal "${signal}".`, { details: { path: 'signal' } });
}

export function exitViewOf(exit: ProcessExit) {
  const { endedAtMs, ...facts } = exit;
  return { ...facts, endedAt: instantOf(endedAtMs) };
}

export function instantOf(ms: number): string {
  return new Date(ms).toISOString();
}
