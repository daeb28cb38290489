/** What init remembers of a run. */
import type { RunReport } from '../protocol/index.ts';
import type { InitClient } from './init-client.ts';
import { parseWaitStatus } from './wait-status.ts';

export async function findRun(client: InitClient, runId: string): Promise<RunReport> {
  const runs = await client.control((connection) => connection.listRuns());
  const entry = runs.find(({ run }) => run === runId);
  if (entry === undefined) return { kind: 'unknown' };
  if (entry.state === 'running') return { kind: 'running', pid: entry.pid };
  return {
    kind: 'ended',
    ...parseWaitStatus(entry.waitStatus),
    timedOut: entry.cause === 'timeout',
    killed: entry.cause === 'asked' || entry.cause === 'sandbox ending',
  };
}
