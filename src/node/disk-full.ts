/** Turns the kernel's "no space" into the refusal that callers know; every other error passes. */
import { constants } from 'node:os';
import { PlatformError } from '../protocol/index.ts';

/** By number: Node has no name for a quota that is used up. */
const noSpace: ReadonlySet<number> = new Set([constants.errno.ENOSPC, constants.errno.EDQUOT]);

export function rethrowDiskFull(error: unknown): never {
  const errno = (error as NodeJS.ErrnoException | undefined)?.errno;
  if (errno === undefined || !noSpace.has(-errno)) throw error;
  throw new PlatformError(
    'insufficient_storage',
    "The disk of the node's data directory is full; nothing was changed.",
    {
      cause: error,
    },
  );
}
