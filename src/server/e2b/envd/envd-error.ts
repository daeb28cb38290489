/**
 * Refusals of the agent: one of Connect's codes, which has a status for plain HTTP too. A sandbox that is gone is none of them: its connections break
 * and what comes later is answered by routing, so it has an error of its own.
 */
import { type ErrorCode, isPlatformError } from '../../../protocol/index.ts';

export const connectStatuses = {
  canceled: 499,
  unknown: 500,
  invalid_argument: 400,
  deadline_exceeded: 504,
  not_found: 404,
  already_exists: 409,
  permission_denied: 403,
  resource_exhausted: 429,
  failed_precondition: 400,
  aborted: 409,
  unimplemented: 501,
  internal: 500,
  unavailable: 503,
  unauthenticated: 401,
} as const;
export type ConnectCode = keyof typeof connectStatuses;

export class EnvdError extends Error {
  override readonly name = 'EnvdError';
  readonly code: ConnectCode;
  /** For plain HTTP. */
  readonly status: number;

  constructor(code: ConnectCode, message: string, options: { readonly status?: number } = {}) {
    super(message);
    this.code = code;
    this.status = options.status ?? connectStatuses[code];
  }
}

/** The sandbox does not run any more. */
export class SandboxGone extends Error {
  override readonly name = 'SandboxGone';
}

const gone: ReadonlySet<ErrorCode> = new Set(['sandbox_not_found', 'sandbox_wrong_state', 'stale_generation']);

const codes: Readonly<Partial<Record<ErrorCode, ConnectCode>>> = {
  invalid_request: 'invalid_argument',
  invalid_command: 'invalid_argument',
  cwd_not_usable: 'invalid_argument',
  process_not_startable: 'invalid_argument',
  user_not_usable: 'unauthenticated',
  process_not_found: 'not_found',
  terminal_not_found: 'not_found',
  file_not_found: 'not_found',
  process_exists: 'already_exists',
  file_exists: 'already_exists',
  not_a_directory: 'invalid_argument',
  is_a_directory: 'invalid_argument',
  file_not_usable: 'invalid_argument',
  payload_too_large: 'invalid_argument',
  directory_not_empty: 'failed_precondition',
  permission_denied: 'permission_denied',
  forbidden: 'permission_denied',
  lease_held: 'aborted',
  lease_lost: 'aborted',
  limit_exceeded: 'resource_exhausted',
  stdin_closed: 'internal',
};

/** What is thrown, as the caller hears of it. Undefined: a bug, which says nothing of itself. */
export function refusalOf(error: unknown): EnvdError | SandboxGone | undefined {
  if (error instanceof EnvdError || error instanceof SandboxGone) return error;
  if (!isPlatformError(error)) return undefined;
  if (gone.has(error.code)) return new SandboxGone(error.message);
  const isFull = error.code === 'file_storage_full' || error.code === 'insufficient_storage';
  if (isFull) return new EnvdError('internal', error.message, { status: 507 });
  const code = codes[error.code] ?? (error.status >= 502 ? 'unavailable' : 'internal');
  return new EnvdError(code, error.message);
}
