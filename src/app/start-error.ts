/** A server or node that cannot start: what, why, and what to do, in one sentence each. */
import { DirectoryInUse } from '../base/index.ts';
import { NewerDirectory } from '../node/index.ts';

export type StartErrorCode =
  | 'port_in_use'
  | 'directory_in_use'
  | 'directory_newer'
  | 'directory_unusable'
  | 'node_unreachable'
  | 'isolation'
  | 'settings_invalid';

export class StartError extends Error {
  override readonly name = 'StartError';
  readonly code: StartErrorCode;

  constructor(code: StartErrorCode, message: string, options: { cause?: unknown } = {}) {
    super(message, options);
    this.code = code;
  }
}

/** What a node that cannot be opened means; anything else as it is. */
export function nodeNotOpened(cause: unknown): unknown {
  if (cause instanceof DirectoryInUse) return new StartError('directory_in_use', cause.message, { cause });
  if (cause instanceof NewerDirectory) return new StartError('directory_newer', cause.message, { cause });
  return cause;
}

/** What a failed listen means; anything but a port in use as it is. */
export function portInUse(cause: unknown, wanted: { readonly host: string; readonly port: number }): unknown {
  if ((cause as NodeJS.ErrnoException).code !== 'EADDRINUSE') return cause;
  const message = `Port ${wanted.port} of ${wanted.host} is in use. Stop what uses it, or choose another with --port.`;
  return new StartError('port_in_use', message, { cause });
}
