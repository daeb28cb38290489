/** Why a database cannot be opened, for the person who started the server: what, why, and what to do. */
export type StoreOpenErrorCode = 'newer_version' | 'not_a_database' | 'locked' | 'unreadable';

export class StoreOpenError extends Error {
  override readonly name = 'StoreOpenError';
  readonly code: StoreOpenErrorCode;

  constructor(code: StoreOpenErrorCode, message: string, options: { readonly cause?: unknown } = {}) {
    super(message, options);
    this.code = code;
  }
}
