/** Opens the sync engine for a checkout. */
import type { Definition, FoundCheckout, SyncPort } from '../checkout/index.ts';
import { CliError } from './cli-error.ts';
import { exitCodes } from './exit-codes.ts';

export interface SyncTarget {
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly stateDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export async function openSync(_target: SyncTarget): Promise<SyncPort> {
  throw new CliError('This build of atoll has no sync engine.', {
    exitCode: exitCodes.notConfigured,
    code: 'sync_missing',
    hint: 'Run the command with --no-sync, in the files that are in the sandbox already.',
  });
}
