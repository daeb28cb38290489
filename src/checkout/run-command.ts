/** Runs a command of a cycle to its end and keeps what it wrote, up to a limit; for callers that want a result and no stream. */
import type { Leased } from './cycle.ts';

export interface CollectedRun {
  readonly processId: string;
  readonly exitCode: number | null;
  readonly timedOut: boolean;
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
  /** Whether more was written than is here; all that is kept can be read by the process's id. */
  readonly truncated: boolean;
}

/** Of each stream, its newest. */
const collectedMaxLength = 256 * 1024;
const killGraceMs = 5_000;

export async function runCollected(
  leased: Leased,
  options: {
    readonly command: string | readonly string[];
    readonly cwd?: string | undefined;
    readonly timeoutMs?: number | undefined;
  },
): Promise<CollectedRun> {
  const { sandbox, definition, signal } = leased;
  const { command, cwd = definition.directory, timeoutMs } = options;
  const process = await sandbox.processes.start(command, {
    cwd,
    env: definition.env,
    ...(timeoutMs !== undefined && { timeoutMs }),
  });
  const stop = () => void process.kill({ signal: 'INT', graceMs: killGraceMs }).catch(() => {});
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  const texts = { stdout: '', stderr: '' };
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  let truncated = false;
  try {
    for await (const item of process.output()) {
      if (item.kind === 'dropped') truncated = true;
      if (item.kind === 'exited') {
        const { exitCode, timedOut, signal: endedBy } = item.exit;
        return { processId: process.id, exitCode, timedOut, signal: endedBy, ...texts, truncated };
      }
      if (item.kind !== 'output') continue;
      const text = texts[item.stream] + decoders[item.stream].decode(item.bytes, { stream: true });
      truncated ||= text.length > collectedMaxLength;
      texts[item.stream] = text.slice(-collectedMaxLength);
    }
  } finally {
    signal.removeEventListener('abort', stop);
  }
  return { processId: process.id, exitCode: null, timedOut: false, signal: null, ...texts, truncated };
}
