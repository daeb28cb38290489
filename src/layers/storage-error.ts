/** What the kernel says of a store's files, as the refusals that callers know. */
import { constants as osConstants } from 'node:os';
import { isPlatformError, PlatformError } from '../protocol/index.ts';

/** By number: Node has no name for a quota that is used up. */
const noSpace: ReadonlySet<number> = new Set([osConstants.errno.ENOSPC, osConstants.errno.EDQUOT]);

export function asStorageError(error: unknown, what: string): PlatformError {
  if (isPlatformError(error)) return error;
  const errno = (error as NodeJS.ErrnoException | undefined)?.errno;
  if (errno !== undefined && noSpace.has(-errno)) {
    return new PlatformError('insufficient_storage', `There is no space left: ${what}.`, { cause: error });
  }
  const reason = error instanceof Error ? error.message : String(error);
  return new PlatformError('storage_failed', `The storage of layers failed: ${what} (${reason}).`, { cause: error });
}
