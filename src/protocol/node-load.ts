/** What a sandbox takes of its machine at one moment, as the kernel counts it from outside. Part of NodeApi; the same rules hold. */
import type { LifeOrder } from './node-api.ts';

export interface SandboxLoad {
  /** Time of processors that its commands have used, since this life began. */
  readonly cpuMicros: number;
  /** With what the kernel keeps of files for it. */
  readonly memoryBytes: number;
  /** What of it the kernel would give back. */
  readonly memoryCacheBytes: number;
  readonly processes: number;
}

export interface NodeLoad {
  /** Of a life that has ended it is refused. */
  load(order: LifeOrder): Promise<SandboxLoad>;
}
