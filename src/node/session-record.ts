/**
 * What a node keeps about one session: a small file in `sessions/` of the sandbox's directory, written before the shell is started and
 * removed when it could not be. As with processes it is not synced: a machine that loses it has lost the shell too.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { prepareFile } from '../base/index.ts';
import { idSchema, type NodeSession, type SessionId, sessionEndReasons } from '../protocol/index.ts';

const formatVersion = 1;
const count = z.int().nonnegative();

const endSchema = z.strictObject({
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  reason: z.enum(sessionEndReasons),
  endedAtMs: count,
});

const recordSchema = z.strictObject({
  format: z.literal(formatVersion),
  sessionId: idSchema('session'),
  generation: z.int().positive(),
  /** Grows with every session of the sandbox. */
  sequence: count,
  name: z.string().nullable(),
  /** null until init has started it. */
  pid: z.int().nullable(),
  shell: z.string(),
  user: z.string().nullable(),
  timeoutMs: z.int().positive().nullable(),
  startedAtMs: count,
  /** The wall clock at boot, so that init's times can be told on any day. */
  bootedAtMs: z.int(),
  end: endSchema.nullable(),
});

export type SessionRecord = z.infer<typeof recordSchema>;

export function sessionsDirectory(sandboxDirectory: string): string {
  return join(sandboxDirectory, 'sessions');
}

export async function writeSessionRecord(sandboxDirectory: string, record: SessionRecord): Promise<void> {
  const path = join(sessionsDirectory(sandboxDirectory), `${record.sessionId}.json`);
  const prepared = await prepareFile(path, `${JSON.stringify(record)}\n`, { mode: 0o600, durable: false });
  await prepared.commit();
}

export async function removeSessionRecord(sandboxDirectory: string, sessionId: SessionId): Promise<void> {
  await rm(join(sessionsDirectory(sandboxDirectory), `${sessionId}.json`), { force: true });
}

/** Every record that can be read, the oldest first; what cannot be read is of no session and is removed. */
export async function readSessionRecords(sandboxDirectory: string): Promise<SessionRecord[]> {
  const directory = sessionsDirectory(sandboxDirectory);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const records: SessionRecord[] = [];
  for (const name of await readdir(directory)) {
    const record = await readOne(join(directory, name));
    if (record !== undefined && name === `${record.sessionId}.json`) records.push(record);
    else await rm(join(directory, name), { force: true });
  }
  return records.sort((a, b) => a.sequence - b.sequence);
}

export async function hasSessions(sandboxDirectory: string): Promise<boolean> {
  const names = await readdir(sessionsDirectory(sandboxDirectory)).catch(() => []);
  return names.length > 0;
}

async function readOne(path: string): Promise<SessionRecord | undefined> {
  try {
    return recordSchema.parse(JSON.parse(await readFile(path, 'utf8')));
  } catch {
    return undefined;
  }
}

export function sessionOf(record: SessionRecord, now: Pick<NodeSession, 'cwd' | 'current' | 'queued'>): NodeSession {
  const { sessionId, generation, name, shell, user, timeoutMs, startedAtMs, end } = record;
  return { sessionId, generation, name, shell, user, timeoutMs, startedAtMs, end, pid: record.pid ?? 0, ...now };
}
