/** What the server asks of control about checkpoints, pauses, restores, forks and backups. */
import type { Caller } from '../control/index.ts';
import type {
  BackupId,
  BackupView,
  BodyOf,
  CheckpointId,
  Conditions,
  QueryOf,
  routes,
  SandboxId,
} from '../protocol/index.ts';
import type { ShownResult } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<ShownResult<Routes[Name]>>;

export interface BranchesPort {
  readonly pauses: {
    pause(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'pauseSandbox'>,
    ): Result<'pauseSandbox'>;
    resume(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'resumeSandbox'>,
    ): Result<'resumeSandbox'>;
  };
  readonly checkpoints: {
    create(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'createCheckpoint'>,
    ): Result<'createCheckpoint'>;
    list(caller: Caller, query: QueryOf<Routes['listCheckpoints']>): Result<'listCheckpoints'>;
    get(caller: Caller, id: CheckpointId): Result<'getCheckpoint'>;
    delete(caller: Caller, id: CheckpointId, conditions: Conditions): Promise<void>;
  };
  readonly restores: {
    restore(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'restoreSandbox'>,
    ): Result<'restoreSandbox'>;
  };
  readonly forks: {
    fork(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'forkSandbox'>,
    ): Result<'forkSandbox'>;
  };
  readonly backups: {
    /** A signal that aborts leaves nothing. */
    create(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'createBackup'>,
      signal: AbortSignal,
    ): Result<'createBackup'>;
    list(caller: Caller, query: QueryOf<Routes['listBackups']>): Result<'listBackups'>;
    get(caller: Caller, id: BackupId): Result<'getBackup'>;
    /** The archive must be read, or its iterator returned. */
    open(
      caller: Caller,
      id: BackupId,
    ): Promise<{ readonly view: BackupView; readonly bytes: AsyncIterable<Uint8Array> }>;
    restore(
      caller: Caller,
      params: { readonly sandboxId: SandboxId; readonly backupId: BackupId },
      conditions: Conditions,
      body: Body<'restoreBackup'>,
      signal: AbortSignal,
    ): Result<'restoreBackup'>;
    delete(caller: Caller, id: BackupId, conditions: Conditions): Promise<void>;
  };
}
