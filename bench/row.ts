/** One subject of the benchmark. Its file measures and judges; what it starts is registered in the scope it is given. */
import type { Finding } from './finding.ts';

export interface Row {
  /** For `--only`. */
  readonly name: string;
  readonly run: (scope: Scope) => Promise<readonly Finding[]>;
}

/**
 * Everything that must be gone afterwards, ended in reverse order when the row is over, fails or is interrupted: platforms,
 * workers, directories.
 */
export interface Scope {
  readonly stack: AsyncDisposableStack;
  /** Belongs to the whole run; on the disk that servers use. */
  readonly directory: string;
}
