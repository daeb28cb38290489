/** What a worker or init says went wrong, as a refusal that names the caller's own path. */
import { constants } from 'node:os';
import { type ErrorCode, PlatformError } from '../../protocol/index.ts';
import { refusalCodes } from '../init-protocol.ts';
import type { Fault } from './wire.ts';
import { WorkerRefused } from './worker.ts';

const faultCodes = { specialFile: 13, changed: 14 } as const;
const { errno } = constants;
const errnoNames = new Map(Object.entries(errno).map(([name, number]) => [number as number, name]));

const codes: Readonly<Partial<Record<number, { readonly code: ErrorCode; readonly what: string }>>> = {
  [errno.ENOENT]: { code: 'file_not_found', what: 'There is no' },
  [errno.EEXIST]: { code: 'file_exists', what: 'There is already a' },
  [errno.ENOTDIR]: { code: 'not_a_directory', what: 'Not a directory, or not all directories above it:' },
  [errno.EISDIR]: { code: 'is_a_directory', what: 'It is a directory:' },
  [errno.ENOTEMPTY]: { code: 'directory_not_empty', what: 'The directory is not empty:' },
  [errno.EACCES]: { code: 'permission_denied', what: 'The user may not do this with' },
  [errno.EPERM]: { code: 'permission_denied', what: 'This is not permitted with' },
  [errno.EROFS]: { code: 'permission_denied', what: 'That part of the sandbox is read-only:' },
  [errno.ENOSPC]: { code: 'file_storage_full', what: 'There is no space left for' },
  [errno.EDQUOT]: { code: 'file_storage_full', what: 'There is no space left for' },
  [errno.EMFILE]: { code: 'limit_exceeded', what: 'Too many files are open for' },
  [errno.ENFILE]: { code: 'limit_exceeded', what: 'Too many files are open for' },
  [errno.ENOMEM]: { code: 'limit_exceeded', what: 'There is not enough memory for' },
};

const reasons: Readonly<Partial<Record<number, string>>> = {
  [errno.ELOOP]: 'too many symlinks',
  [errno.ENAMETOOLONG]: 'the name is too long',
  [errno.EXDEV]: 'it would leave its file system or directory; copy and remove instead',
  [errno.EBUSY]: 'it is in use',
  [errno.ETXTBSY]: 'it is a program that runs',
  [errno.EINVAL]: 'that is not possible with it',
  [errno.EFBIG]: 'it would be too large',
};

export function errorOfFault(fault: Fault, path: string): PlatformError {
  const name = errnoNames.get(fault.errno) ?? `errno ${fault.errno}`;
  const details = { path, errno: name };
  if (fault.code === faultCodes.changed) {
    return new PlatformError('file_changed', `${path} is not the file that was expected; nothing was changed.`, {
      details,
    });
  }
  if (fault.code === faultCodes.specialFile) {
    return new PlatformError('file_not_usable', `${path} is a FIFO, a socket or a device.`, { details });
  }
  const known = codes[fault.errno];
  if (known !== undefined) return new PlatformError(known.code, `${known.what} ${path}.`, { details });
  const reason = reasons[fault.errno] ?? name;
  return new PlatformError('file_not_usable', `This cannot be done with ${path}: ${reason}.`, { details });
}

/** Why there is no worker. Nothing was done. */
export function refusalOfWorker(error: unknown, user: string | null): PlatformError {
  if (error instanceof PlatformError) return error;
  if (!(error instanceof WorkerRefused)) {
    return new PlatformError('sandbox_unavailable', 'The sandbox does not answer; nothing was done.', { cause: error });
  }
  const { code, text } = error.refusal;
  const details = { reason: text.slice(0, 200) };
  switch (code) {
    case refusalCodes.user:
      return new PlatformError('user_not_usable', `The sandbox has no user "${user}"; nothing was done.`, { details });
    case refusalCodes.fork:
      return new PlatformError('limit_exceeded', "The sandbox's process limit is reached; nothing was done.", {
        details,
      });
    case refusalCodes.initLimit:
      return new PlatformError('limit_exceeded', 'The sandbox takes no more connections now; nothing was done.', {
        details,
      });
    case refusalCodes.fence:
      return new PlatformError('lease_lost', 'The lease token is not the current one; nothing was done.');
    case refusalCodes.ending:
      return new PlatformError('sandbox_wrong_state', 'The sandbox is ending; nothing was done.', {
        details: { state: 'stopping' },
      });
    case refusalCodes.generation:
      return new PlatformError('stale_generation', 'Another life of the sandbox runs; nothing was done.');
    default:
      return new PlatformError('sandbox_unavailable', 'The sandbox could not do file work; nothing was done.', {
        details,
      });
  }
}
