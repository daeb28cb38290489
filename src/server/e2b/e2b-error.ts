/** Refusals in the shape that E2B's clients read: the status again as a number in the body, and a sentence. */
import { errorCatalog, isPlatformError, type PlatformError } from '../../protocol/index.ts';

export class E2bError extends Error {
  override readonly name = 'E2bError';
  readonly status: number;
  /** What else stands in the body. */
  readonly fields: Readonly<Record<string, unknown>>;

  constructor(
    status: number,
    message: string,
    options: { fields?: Readonly<Record<string, unknown>>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.status = status;
    this.fields = options.fields ?? {};
  }

  get body(): string {
    return JSON.stringify({ ...this.fields, code: this.status, message: this.message });
  }
}

/** What E2B has and this server does not. */
export function notSupported(what: string): E2bError {
  return new E2bError(501, `${what} not supported by this server.`, { fields: { error_code: 'not_supported' } });
}

/** What clients are told of what went wrong; undefined: a bug, of which they are told nothing. */
export function e2bErrorOf(error: unknown): E2bError | undefined {
  if (error instanceof E2bError) return error;
  if (!isPlatformError(error)) return undefined;
  const fields = { error_code: error.code };
  return new E2bError(statusOf(error), error.message, { fields, cause: error });
}

function statusOf(error: PlatformError): number {
  switch (error.code) {
    case 'lease_held':
    case 'version_mismatch':
      return 409;
    case 'outcome_unknown':
      return 500;
    default:
      return errorCatalog[error.code].status;
  }
}
