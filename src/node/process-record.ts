/**
 * What a node keeps about one process or terminal: a small file in `processes/` or `terminals/` of the sandbox's directory, written before
 * it is started and removed when it could not be. It is not synced: a machine that loses it has lost the process too, and its life is over.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { assert, SmallFiles } from '../base/index.ts';
import { idSchema, isId, type NodeProcess, type ProcessId, type TerminalId } from '../protocol/index.ts';

const formatVersion = 1;
const count = z.int().nonnegative();

const exitSchema = z.strictObject({
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  killed: z.boolean(),
  outOfMemory: z.boolean(),
  sandboxEnded: z.boolean(),
  endedAtMs: count,
});

const recordSchema = z.strictObject({
  format: z.literal(formatVersion),
  processId: z.union([idSchema('process'), idSchema('terminal')]),
  generation: z.int().positive(),
  /** Grows with every process of the sandbox. */
  sequence: count,
  /** What it was asked for with. */
  request: z.string().optional(),
  name: z.string().nullable(),
  /** The session it was started from. */
  sessionId: idSchema('session').nullable().default(null),
  /** null until init has started it. */
  pid: z.int().nullable(),
  command: z.union([z.string(), z.array(z.string())]),
  cwd: z.string(),
  user: z.string().nullable(),
  startedAtMs: count,
  /** The wall clock at boot, so that the times of the journal can be told on any day. */
  bootedAtMs: z.int(),
  autoCleanup: z.boolean(),
  stdinOpen: z.boolean(),
  stdinOffset: count,
  /** When KILL follows a signal that had a grace; boot time. */
  killAtBootMs: count.nullable(),
  exit: exitSchema.nullable(),
  treeEndedAtMs: count.nullable(),
  /** Of the output, once the tree has ended. */
  output: z.strictObject({ first: count, end: count }).nullable(),
  /** Of a terminal: the size that was last set. */
  terminal: z.strictObject({ columns: count, rows: count }).optional(),
});

export type ProcessRecord = z.infer<typeof recordSchema>;
export type RunKind = 'process' | 'terminal';
export type RunId = ProcessId | TerminalId;

const directoryNames: Readonly<Record<RunKind, string>> = { process: 'processes', terminal: 'terminals' };

export function processesDirectory(sandboxDirectory: string, kind: RunKind = 'process'): string {
  return join(sandboxDirectory, directoryNames[kind]);
}

function recordName(id: RunId): string {
  return `${id}.json`;
}

/** Init makes one directory in it for each process. */
export function journalsDirectory(sandboxDirectory: string): string {
  return join(sandboxDirectory, 'journals');
}

/** The files of the records of one kind. */
export function processRecordFiles(sandboxDirectory: string, kind: RunKind = 'process'): SmallFiles {
  return new SmallFiles(processesDirectory(sandboxDirectory, kind), { mode: 0o600 });
}

export function writeProcessRecord(
  files: SmallFiles,
  record: ProcessRecord,
  options: { readonly isNew: boolean },
): void {
  const content = `${JSON.stringify(record)}\n`;
  if (options.isNew) files.create(recordName(record.processId), content);
  else files.write(recordName(record.processId), content);
}

export async function removeProcessRecord(sandboxDirectory: string, processId: RunId): Promise<void> {
  const kind = isId('terminal', processId) ? 'terminal' : 'process';
  await rm(join(processesDirectory(sandboxDirectory, kind), recordName(processId)), { force: true });
}

/** Every record that can be read, the oldest first; what cannot be read is of no process and is removed. */
export async function readProcessRecords(sandboxDirectory: string, kind: RunKind): Promise<ProcessRecord[]> {
  const directory = processesDirectory(sandboxDirectory, kind);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const records: ProcessRecord[] = [];
  for (const name of await readdir(directory)) {
    const record = await readOne(join(directory, name));
    if (record !== undefined && name === recordName(record.processId)) records.push(record);
    else await rm(join(directory, name), { force: true });
  }
  return records.sort((a, b) => a.sequence - b.sequence);
}

export async function hasProcesses(sandboxDirectory: string, kind: RunKind): Promise<boolean> {
  const names = await readdir(processesDirectory(sandboxDirectory, kind)).catch(() => []);
  return names.some((name) => !name.startsWith('.'));
}

/** Names of journals that are there, whether or not a record knows them. */
export async function listJournals(sandboxDirectory: string, kind: RunKind): Promise<RunId[]> {
  const names: string[] = await readdir(journalsDirectory(sandboxDirectory)).catch(() => []);
  return names.filter((name): name is RunId => isId(kind, name));
}

async function readOne(path: string): Promise<ProcessRecord | undefined> {
  try {
    return recordSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return undefined;
  }
}

export function processOf(record: ProcessRecord, output: NodeProcess['output']): NodeProcess {
  const { processId, generation, name, sessionId, command, cwd, user, startedAtMs } = record;
  assert(isId('process', processId));
  return {
    ...{ processId, generation, name, sessionId, command, cwd, user, startedAtMs, output },
    ...{ exit: record.exit, treeEndedAtMs: record.treeEndedAtMs, stdinOpen: record.stdinOpen },
    pid: record.pid ?? 0,
  };
}
