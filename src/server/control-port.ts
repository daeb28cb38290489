/**
 * What the server asks of control, in the shapes of the routes: a change of a route that control does not follow fails to
 * compile where app puts the two together. Tests stand a fake behind it.
 */
import type { Caller, LoadView } from '../control/index.ts';
import type {
  AnyRoute,
  BodyOf,
  Conditions,
  EventView,
  FileContent,
  FileEventView,
  KeyId,
  LeaseId,
  LeaseView,
  QueryOf,
  ResultOf,
  routes,
  SandboxId,
  TeamId,
  WebhookId,
  WriteFileOrder,
} from '../protocol/index.ts';
import type { BranchesPort } from './branches-port.ts';
import type { PlansPort } from './plans-port.ts';
import type { PortsPort } from './ports-port.ts';
import type { ProcessesPort } from './processes-port.ts';
import type { SessionsPort } from './sessions-port.ts';
import type { TemplatesPort } from './templates-port.ts';
import type { TerminalsPort } from './terminals-port.ts';
import type { WorkspacesPort } from './workspaces-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Query<Name extends keyof Routes> = QueryOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<Shown<ResultOf<Routes[Name]>>>;

/** The same data, which nobody changes any more. */
export type Shown<Value> = unknown extends Value
  ? Value
  : Value extends string | number | boolean | null | undefined
    ? Value
    : Value extends readonly (infer Item)[]
      ? readonly Shown<Item>[]
      : { readonly [Key in keyof Value]: Shown<Value[Key]> };

export type ShownResult<Route extends AnyRoute> = Shown<ResultOf<Route>>;

export type FileExpectation = WriteFileOrder['expected'];

export interface ControlPort extends BranchesPort, WorkspacesPort, PlansPort {
  readonly who: {
    /** Refuses with `unauthenticated`. */
    authenticate(keyText: string): Promise<Caller>;
    /** Who a secret of one sandbox stands for; undefined: there is no such sandbox. */
    actingFor(sandboxId: SandboxId): Promise<Caller | undefined>;
    me(caller: Caller): Result<'whoAmI'>;
    createKey(caller: Caller, conditions: Conditions, body: Body<'createKey'>): Result<'createKey'>;
    listKeys(caller: Caller): Result<'listKeys'>;
    revokeKey(caller: Caller, conditions: Conditions, keyId: KeyId): Promise<void>;
    createSandboxToken(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'createSandboxToken'>,
    ): Result<'createSandboxToken'>;
    createUser(caller: Caller, conditions: Conditions, body: Body<'createUser'>): Result<'createUser'>;
    listUsers(caller: Caller): Result<'listUsers'>;
    createTeam(caller: Caller, conditions: Conditions, body: Body<'createTeam'>): Result<'createTeam'>;
    updateTeam(caller: Caller, conditions: Conditions, teamId: TeamId, body: Body<'updateTeam'>): Result<'updateTeam'>;
    listTeams(caller: Caller): Result<'listTeams'>;
  };
  readonly sandboxes: {
    create(
      caller: Caller,
      conditions: Conditions,
      body: Body<'createSandbox'>,
    ): Promise<{ readonly view: ShownResult<Routes['createSandbox']>; readonly created: boolean }>;
    list(caller: Caller, query: Query<'listSandboxes'>): Result<'listSandboxes'>;
    get(caller: Caller, sandboxId: SandboxId): Result<'getSandbox'>;
    load(caller: Caller, sandboxId: SandboxId): Promise<LoadView>;
    update(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'updateSandbox'>,
    ): Result<'updateSandbox'>;
    stop(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'stopSandbox'>,
    ): Result<'stopSandbox'>;
    start(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'startSandbox'>,
    ): Result<'startSandbox'>;
    delete(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      options: { readonly force: boolean },
    ): Promise<void>;
  };
  readonly metadata: {
    get(caller: Caller, sandboxId: SandboxId): Result<'getMetadata'>;
    patch(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      patch: Body<'patchMetadata'>,
    ): Result<'patchMetadata'>;
    history(caller: Caller, sandboxId: SandboxId, query: Query<'listMetadataHistory'>): Result<'listMetadataHistory'>;
  };
  readonly execution: {
    /** `signal` stops the command. */
    exec(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'exec'>,
      signal?: AbortSignal,
    ): Result<'exec'>;
  };
  readonly files: {
    /** The content must be read, or its iterator returned. */
    read(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      wanted: Query<'readFile'> & { readonly offset: number; readonly length: number | null },
      signal: AbortSignal,
    ): Promise<FileContent>;
    /** A signal that aborts, or bytes that fail, undo the write. */
    write(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      wanted: Query<'writeFile'> & { readonly expected: FileExpectation },
      bytes: AsyncIterable<Uint8Array>,
      signal: AbortSignal,
    ): Result<'writeFile'>;
    stat(caller: Caller, sandboxId: SandboxId, conditions: Conditions, query: Query<'statFile'>): Result<'statFile'>;
    labels(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      query: Query<'getFileLabels'>,
    ): Result<'getFileLabels'>;
    setLabels(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: Body<'setFileLabels'>): Promise<void>;
    list(caller: Caller, sandboxId: SandboxId, conditions: Conditions, query: Query<'listFiles'>): Result<'listFiles'>;
    changes(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      query: Query<'listFileChanges'>,
    ): Result<'listFileChanges'>;
    makeDirectory(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'makeDirectory'>,
    ): Result<'makeDirectory'>;
    move(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: Body<'moveFile'>): Result<'moveFile'>;
    copy(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: Body<'copyFile'>): Result<'copyFile'>;
    remove(caller: Caller, sandboxId: SandboxId, conditions: Conditions, query: Query<'removeFile'>): Promise<void>;
    changeAttributes(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      body: Body<'changeFileAttributes'>,
    ): Result<'changeFileAttributes'>;
    downloadTree(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      query: Query<'downloadTree'>,
      signal: AbortSignal,
    ): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;
    uploadTree(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      query: Query<'uploadTree'>,
      tar: AsyncIterable<Uint8Array>,
      signal: AbortSignal,
    ): Result<'uploadTree'>;
    watch(
      caller: Caller,
      sandboxId: SandboxId,
      conditions: Conditions,
      query: Query<'watchFiles'>,
      signal: AbortSignal,
    ): AsyncIterable<Shown<FileEventView>>;
  };
  readonly processes: ProcessesPort;
  readonly sessions: SessionsPort;
  readonly ports: PortsPort;
  readonly terminals: TerminalsPort;
  readonly templates: TemplatesPort;
  readonly leases: {
    /** `signal`: the waiter gives up. */
    acquire(
      caller: Caller,
      conditions: Conditions,
      body: Body<'acquireLease'>,
      signal?: AbortSignal,
    ): Result<'acquireLease'>;
    renew(caller: Caller, leaseId: LeaseId, conditions: Conditions, body: Body<'renewLease'>): Result<'renewLease'>;
    release(caller: Caller, leaseId: LeaseId, conditions: Conditions): Promise<void>;
    /** Renews it while the signal is not aborted. */
    hold(caller: Caller, leaseId: LeaseId, signal: AbortSignal): AsyncIterable<Shown<LeaseView>>;
    list(caller: Caller, query: Query<'listLeases'>): Result<'listLeases'>;
  };
  readonly events: {
    list(caller: Caller, query: Query<'listEvents'>): Result<'listEvents'>;
    follow(
      caller: Caller,
      from: { readonly after?: number; readonly sandboxId?: SandboxId },
      signal: AbortSignal,
    ): AsyncIterable<Shown<EventView>>;
  };
  readonly webhooks: {
    create(caller: Caller, conditions: Conditions, body: Body<'createWebhook'>): Result<'createWebhook'>;
    list(caller: Caller): Result<'listWebhooks'>;
    delete(caller: Caller, conditions: Conditions, webhookId: WebhookId): Promise<void>;
  };
  readonly operations: {
    get(caller: Caller, reference: string): Result<'getOperation'>;
  };
  readonly reconciler: {
    run(caller: Caller, options: { readonly dryRun: boolean }): Result<'reconcile'>;
  };
  readiness(): { readonly ready: boolean; readonly reasons: readonly string[] };
  metrics(): Promise<readonly Metric[]>;
}

export interface Metric {
  readonly name: string;
  readonly help: string;
  readonly type: 'counter' | 'gauge';
  readonly samples: readonly { readonly labels: Readonly<Record<string, string>>; readonly value: number }[];
}
