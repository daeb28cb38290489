/** One reading of what a sandbox uses: the use of processors is the difference between two looks. */
import type { Timers } from '../../base/index.ts';
import type { Caller } from '../../control/index.ts';
import type { ControlPort } from '../control-port.ts';
import type { SandboxSeen } from './sandbox-views.ts';

const betweenMs = 100;

export interface MetricSource {
  readonly control: ControlPort;
  readonly timers: Timers;
}

export async function readMetric(
  { control, timers }: MetricSource,
  caller: Caller,
  { id, limits }: Pick<SandboxSeen, 'id' | 'limits'>,
) {
  const before = await control.sandboxes.load(caller, id);
  const startedMs = performance.now();
  await new Promise<void>((resolve) => timers.after(betweenMs, resolve));
  const load = await control.sandboxes.load(caller, id);
  const passedMicros = (performance.now() - startedMs) * 1000;
  const now = new Date();
  return {
    timestamp: now.toISOString(),
    timestampUnix: Math.floor(now.getTime() / 1000),
    cpuCount: Math.max(1, Math.round(limits.cpuMillis / 1000)),
    cpuUsedPct: Math.round(((load.cpuMicros - before.cpuMicros) / passedMicros) * 10_000) / 100,
    memUsed: load.memoryBytes,
    memTotal: limits.memoryBytes,
    memCache: load.memoryCacheBytes,
    diskUsed: load.diskBytes,
    diskTotal: load.diskTotalBytes,
  };
}
