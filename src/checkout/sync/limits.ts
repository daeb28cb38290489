/** What one sync may carry, and how it is told when it would be more. */
import { PlatformError } from '../../protocol/index.ts';
import { defaultSyncLimits, type SyncLimits } from './options.ts';

export interface SizedPath {
  readonly path: string;
  readonly bytes: number;
}

const namedPaths = 10;

export function limitsOf(given: Partial<SyncLimits> | undefined): SyncLimits {
  return { ...defaultSyncLimits, ...given };
}

export function checkLimits(paths: readonly SizedPath[], limits: SyncLimits, where: 'here' | 'in the sandbox'): void {
  const total = paths.reduce((sum, { bytes }) => sum + bytes, 0);
  const largest = paths.reduce((most, { bytes }) => Math.max(most, bytes), 0);
  if (paths.length <= limits.files && total <= limits.totalBytes && largest <= limits.fileBytes) return;
  const biggest = [...paths].sort((a, b) => b.bytes - a.bytes).slice(0, namedPaths);
  const named = biggest.map(({ path, bytes }) => `  ${path} (${bytes} bytes)`).join('\n');
  throw new PlatformError(
    'sync_limit_exceeded',
    `${paths.length} changed files with ${total} bytes ${where} are more than one sync carries. The biggest:\n${named}\nIgnore what need not be synced, or raise the limits.`,
    { details: { files: paths.length, bytes: total, biggest, limits } },
  );
}
