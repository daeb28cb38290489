/** Turns the kernel's "no space" into the refusal that callers know; every other error passes. */
import { PlatformError } from '../protocol/index.ts';

const noSpace = new Set(['ENOSPC', 'EDQUOT']);

export function rethrowDiskFull(error: unknown): never {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  if (code === undefined || !noSpace.has(code)) throw error;
  throw new PlatformError(
    'insufficient_storage',
    "The disk of the node's data directory is full; nothing was changed.",
    {
      cause: error,
    },
  );
}
