/** A failure of the command line itself, not of the server: what, and what to do. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: number;
  /** For `--json`. */
  readonly code: string;
  readonly hint: string;

  constructor(message: string, options: { readonly exitCode: number; readonly code: string; readonly hint: string }) {
    super(message);
    this.exitCode = options.exitCode;
    this.code = options.code;
    this.hint = options.hint;
  }
}
