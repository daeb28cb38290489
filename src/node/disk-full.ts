/** Turns the kernel's "no space" into the refusal that callers know; every other error passes. */
import { constants } from 'node:os';
import { PlatformError } from '../protocol/index.ts';

/** By number: Node has no name for a quota that is used up. */
const noSpace: ReadonlySet<number> = new Set([constants.errno.ENOSPC, constants.errno.EDQUOT]);

export function asDiskFull(error: unknown, outcome = 'nothing was changed'): unknown {
  const errno = (error as NodeJS.ErrnoException | undefined)?.errno;
  if (errno === undefined || !noSpace.has(-errno)) return error;
  const message = `The disk of the node's data directory is full; ${outcome}.`;
  return new PlatformError('insufficient_storage', message, { cause: error });
}

export function rethrowDiskFull(error: unknown): never {
  throw asDiskFull(error);
}
