/** What the server asks of control about workspaces, their versions, and where sandboxes have them. */
import type { Caller } from '../control/index.ts';
import type { BodyOf, Conditions, QueryOf, routes, SandboxId } from '../protocol/index.ts';
import type { ShownResult } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Query<Name extends keyof Routes> = QueryOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<ShownResult<Routes[Name]>>;
/** To be read, or its iterator returned. */
type Bytes = Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;

/** One attachment, as its routes name it. */
interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly workspace: string;
  readonly conditions: Conditions;
}

export interface WorkspacesPort {
  readonly workspaces: {
    create(caller: Caller, conditions: Conditions, body: Body<'createWorkspace'>): Result<'createWorkspace'>;
    list(caller: Caller, query: Query<'listWorkspaces'>): Result<'listWorkspaces'>;
    get(caller: Caller, workspace: string): Result<'getWorkspace'>;
    delete(caller: Caller, workspace: string, conditions: Conditions): Promise<void>;
    versions(caller: Caller, workspace: string, query: Query<'listWorkspaceVersions'>): Result<'listWorkspaceVersions'>;
    version(caller: Caller, workspace: string, number: number): Result<'getWorkspaceVersion'>;
    diff(caller: Caller, workspace: string, query: Query<'diffWorkspace'>): Result<'diffWorkspace'>;
    patch(caller: Caller, workspace: string, query: Query<'patchWorkspace'>, signal: AbortSignal): Bytes;
    blob(caller: Caller, workspace: string, blob: string, signal: AbortSignal): Bytes;
    revert(
      caller: Caller,
      workspace: string,
      conditions: Conditions,
      body: Body<'revertWorkspace'>,
    ): Result<'revertWorkspace'>;
  };
  readonly versions: {
    /** A signal that aborts leaves nothing. */
    importBytes(
      caller: Caller,
      workspace: string,
      conditions: Conditions,
      query: Query<'importWorkspace'>,
      bytes: AsyncIterable<Uint8Array>,
      signal: AbortSignal,
    ): Result<'importWorkspace'>;
    importRemote(
      caller: Caller,
      workspace: string,
      conditions: Conditions,
      body: Body<'importWorkspaceRemote'>,
      signal: AbortSignal,
    ): Result<'importWorkspaceRemote'>;
    push(
      caller: Caller,
      workspace: string,
      conditions: Conditions,
      body: Body<'pushWorkspace'>,
      signal: AbortSignal,
    ): Result<'pushWorkspace'>;
    export(caller: Caller, workspace: string, query: Query<'exportWorkspace'>, signal: AbortSignal): Bytes;
  };
  readonly attachments: {
    list(caller: Caller, sandboxId: SandboxId): Result<'listAttachments'>;
    attach(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'attachWorkspace'>,
    ): Result<'attachWorkspace'>;
    detach(asked: Asked, query: Query<'detachWorkspace'>): Promise<void>;
    drop(asked: Asked): Result<'dropAttachment'>;
  };
  readonly attachmentChanges: {
    diff(asked: Asked, body: Body<'diffAttachment'>, signal: AbortSignal): Result<'diffAttachment'>;
    patch(asked: Asked, signal: AbortSignal): Bytes;
    commit(asked: Asked, body: Body<'commitAttachment'>, signal: AbortSignal): Result<'commitAttachment'>;
    update(asked: Asked): Result<'updateAttachment'>;
  };
}
