/**
 * The start command of a template: a process of every life of its sandboxes, named `start`. Whoever asked for the life hears of it when the
 * command is ready.
 *
 * Invariant: the record of a life names the process until it is ready (`startOwed`). Its id is chosen with the life, so a node that was killed in
 * between starts it once, or finds it.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { FaultPoints } from '../../base/index.ts';
import { type NodeApi, newId, PlatformError, type ProcessId, type TemplateStart } from '../../protocol/index.ts';
import { type NodeRecord, writeRecord } from '../node-record.ts';

const processName = 'start';
const keepBytes = 16 * 1024 * 1024;
const pauseMs = 50;
/** Of one look at whether it is ready. */
const lookMs = 5_000;
const lookOutputBytes = 4_096;

type Calls = Pick<NodeApi, 'startProcess' | 'getProcess' | 'probePort' | 'exec'>;

/** The record of a life that is about to begin. */
export function owingStart({ startOwed: _earlier, ...record }: NodeRecord): NodeRecord {
  const hasStart = (record.template?.start ?? null) !== null && !record.mark.isHidden;
  return hasStart ? { ...record, startOwed: newId('process') } : record;
}

export interface Settling {
  readonly directory: string;
  readonly calls: Calls;
  readonly faults: FaultPoints;
  /** Ends the life whose start failed. */
  readonly takeBack: () => Promise<void>;
}

/** Starts what the life owes, if it has not begun, and waits until it is ready. Refuses with `template_start_failed`. */
export async function settleStart(sandbox: { record: NodeRecord }, options: Settling): Promise<void> {
  const { startOwed, ...settled } = sandbox.record;
  if (startOwed === undefined) return;
  try {
    await run(sandbox.record, startOwed, options);
    await writeRecord(options.directory, settled);
    sandbox.record = settled;
  } catch (error) {
    await options.takeBack();
    throw error;
  }
}

async function run(record: NodeRecord, processId: ProcessId, { calls, faults }: Settling): Promise<void> {
  const start = record.template!.start!;
  const life = { sandboxId: record.mark.sandboxId, generation: record.generation };
  const leaseToken = record.settings.leaseHeld ? record.settings.leaseToken : null;
  const order = {
    ...life,
    processId,
    name: processName,
    leaseToken,
    command: start.command,
    ...{
      cwd: null,
      env: {},
      user: null,
      stdinOpen: false,
      timeoutMs: null,
      graceMs: 1_000,
      keepBytes,
      autoCleanup: false,
    },
  };
  await calls.startProcess(order).catch((error: unknown) => {
    throw failed('The start command of the template cannot be started.', error);
  });
  await faults.hit('node-start-command-begun');
  const deadline = performance.now() + start.ready.timeoutMs;
  for (;;) {
    if (await isReady(start, { ...life, leaseToken }, calls)) return;
    const { exit } = await calls.getProcess({ ...life, process: processId });
    if (exit !== null)
      throw failed(`The start command of the template ended with ${exit.exitCode} before it was ready.`);
    if (performance.now() > deadline) throw failed('The start command of the template was not ready in time.');
    await delay(pauseMs);
  }
}

async function isReady(
  { ready }: TemplateStart,
  life: Pick<Parameters<Calls['exec']>[0], 'sandboxId' | 'generation' | 'leaseToken'>,
  calls: Calls,
): Promise<boolean> {
  const { sandboxId, generation } = life;
  if (ready.port !== null) {
    const probe = { sandboxId, generation, port: ready.port, family: null, httpPath: null, timeoutMs: lookMs };
    const { open } = await calls.probePort(probe, AbortSignal.timeout(lookMs));
    if (!open) return false;
  }
  if (ready.command === null) return true;
  const look = { command: ready.command, cwd: null, env: {}, user: null, stdin: null, timeoutMs: lookMs };
  const outcome = await calls.exec({ ...life, ...look, runId: newId('operation'), outputLimitBytes: lookOutputBytes });
  return outcome.exitCode === 0;
}

function failed(message: string, cause?: unknown): PlatformError {
  return new PlatformError('template_start_failed', message, { cause });
}
