/**
 * The set-up steps of a definition, and the previews of its ports, once per sandbox and content: a sandbox remembers the hash of what was done. A step that fails is recorded
 * too, with the end of what it said, so that whoever waits hears of it at once and nobody works in a half-made sandbox.
 */
import type { Sandbox } from '../sdk/index.ts';
import { failureText, metadataKeys, readClientState, type SetupFailure } from './client-state.ts';
import type { Definition } from './definition.ts';
import { setupFailed } from './readiness.ts';

export interface SetUpOptions {
  readonly definition: Definition;
  readonly onStep: (step: string) => void;
  readonly onOutput: (bytes: Uint8Array) => void;
  readonly signal: AbortSignal;
}

const tailMaxLength = 4_000;

/** The handle carries the lease. Answers whether something was done. */
export async function ensureSetUp(sandbox: Sandbox, options: SetUpOptions): Promise<boolean> {
  const { definition } = options;
  const state = readClientState(sandbox.metadata);
  if (state?.failure) throw setupFailed(state.failure);
  const isEmpty = definition.setup.length === 0 && definition.ports.length === 0;
  if (isEmpty || state?.setup === definition.setupHash) return false;
  const untilMs = performance.now() + definition.setupTimeout;
  for (const step of definition.setup) {
    const failure = await runStep(sandbox, step, { ...options, leftMs: Math.ceil(untilMs - performance.now()) });
    if (failure === undefined) continue;
    await sandbox.patchMetadata({ [metadataKeys.failure]: failureText(failure) });
    throw setupFailed(failure);
  }
  for (const port of definition.ports) await sandbox.ports.expose(port);
  await sandbox.patchMetadata({ [metadataKeys.setup]: definition.setupHash });
  return true;
}

async function runStep(
  sandbox: Sandbox,
  step: string,
  options: SetUpOptions & { readonly leftMs: number },
): Promise<SetupFailure | undefined> {
  const { definition, onStep, onOutput, signal, leftMs } = options;
  onStep(step);
  if (leftMs <= 0) return { reason: 'timed_out', step, exitCode: null, tail: '' };
  const process = await sandbox.processes.start(step, {
    cwd: definition.directory,
    env: definition.env,
    timeoutMs: leftMs,
    autoCleanup: true,
  });
  let tail = '';
  let isCancelled = false;
  const cancel = () => {
    isCancelled = true;
    void process.kill({ graceMs: 2_000 }).catch(() => {});
  };
  if (signal.aborted) cancel();
  signal.addEventListener('abort', cancel, { once: true });
  try {
    for await (const item of process.output()) {
      if (item.kind === 'output') {
        onOutput(item.bytes);
        tail = (tail + new TextDecoder().decode(item.bytes)).slice(-tailMaxLength);
      }
      if (item.kind !== 'exited') continue;
      const { exitCode, timedOut } = item.exit;
      if (exitCode === 0 && !isCancelled) return undefined;
      return { reason: timedOut ? 'timed_out' : isCancelled ? 'cancelled' : 'failed', step, exitCode, tail };
    }
  } finally {
    signal.removeEventListener('abort', cancel);
  }
  return { reason: 'failed', step, exitCode: null, tail };
}
