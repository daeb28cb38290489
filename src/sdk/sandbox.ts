/**
 * One life of one sandbox.
 *
 * Invariants:
 *  - Every change it asks for names the generation it was made for, so that a handle from an earlier life is refused with
 *    `stale_generation` and never acts on a later one. Its own `start` moves it on.
 *  - `view` is what the server last said to this handle; nothing here guesses.
 */
import {
  type BodyInputOf,
  isErrorCode,
  isPlatformError,
  PlatformError,
  type QueryInputOf,
  type ResultOf,
  routes,
  type SandboxView,
  type StateKind,
} from '../protocol/index.ts';
import { SandboxBackups } from './backups.ts';
import { SandboxCheckpoints } from './checkpoints.ts';
import { type CallOptions, Connection, type ConnectionOptions } from './connection.ts';
import { definedOf } from './defined-of.ts';
import { type ExecOptions, type ExecResult, execBody, execResultOf } from './exec.ts';
import { Files } from './files.ts';
import { Git } from './git.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import { type AcquireLeaseOptions, type HeldLease, Leases } from './leases.ts';
import { Ports } from './ports.ts';
import { Processes, type SandboxBinding } from './processes.ts';
import { SandboxWorkspace, SandboxWorkspaces } from './sandbox-workspaces.ts';
import { Sessions } from './sessions.ts';
import { Terminals } from './terminals.ts';

/** A client, or where to find the server. */
export type ClientChoice = { readonly client: { readonly connection: Connection } } | ConnectionOptions;

export type CreateSandboxOptions = Omit<BodyInputOf<(typeof routes)['createSandbox']>, 'ifExists'>;
export type UpdateSandboxOptions = BodyInputOf<(typeof routes)['updateSandbox']>;
export type NetworkInput = NonNullable<UpdateSandboxOptions['network']>;
export interface ListSandboxesOptions {
  readonly state?: readonly StateKind[];
  /** Every pair must be equal. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly namePrefix?: string;
  /** Only those made with this key's user (or, for a key without a user, with this key). */
  readonly mine?: boolean;
  readonly cursor?: string;
  readonly limit?: number;
}
export type MetadataView = ResultOf<(typeof routes)['getMetadata']>;
export type MetadataHistory = ResultOf<(typeof routes)['listMetadataHistory']>;
export type PauseOptions = BodyInputOf<(typeof routes)['pauseSandbox']>;
export type ForkOptions = BodyInputOf<(typeof routes)['forkSandbox']>;
export type Fork =
  | { readonly sandbox: Sandbox; readonly error: null }
  | { readonly sandbox: null; readonly error: PlatformError };
type CreateCall = Pick<CallOptions, 'idempotencyKey' | 'signal'>;

/** How often `setMetadata` looks again when others change it at the same time. */
const setMetadataAttempts = 10;

export class Sandbox implements AsyncDisposable {
  readonly #connection: Connection;
  readonly #leaseToken: number | undefined;
  /** Whether `await using` deletes it: only whoever made it. */
  readonly #isOwned: boolean;
  #view: SandboxView;

  constructor(
    connection: Connection,
    view: SandboxView,
    options: { readonly isOwned?: boolean; readonly leaseToken?: number } = {},
  ) {
    this.#connection = connection;
    this.#view = view;
    this.#isOwned = options.isOwned ?? false;
    this.#leaseToken = options.leaseToken;
  }

  /** Makes a sandbox; `await using` deletes it at the end of its block. Repeats are harmless: it has a key of its own. */
  static async create(options: ClientChoice & CreateSandboxOptions & CreateCall): Promise<Sandbox> {
    const { connection, rest } = connectionOf(options);
    const view = await createCall(connection, rest, 'refuse');
    return new Sandbox(connection, view, { isOwned: true });
  }

  /** The sandbox of this name, made if there is none. However many ask at once, there is one. */
  static async getOrCreate(
    options: ClientChoice & CreateSandboxOptions & CreateCall & { readonly name: string },
  ): Promise<Sandbox> {
    const { connection, rest } = connectionOf(options);
    return new Sandbox(connection, await createCall(connection, rest, 'get'));
  }

  /** A handle on the present life of a sandbox. */
  static async connect(sandboxId: string, options: ClientChoice & { readonly signal?: AbortSignal }): Promise<Sandbox> {
    const { connection, rest } = connectionOf(options);
    const view = await connection.call(routes.getSandbox, {
      params: { sandboxId },
      ...(rest.signal && { signal: rest.signal }),
    });
    return new Sandbox(connection, view);
  }

  /** One page, newest first; `nextCursor` asks for the next. */
  static async list(
    options: ClientChoice & ListSandboxesOptions & { readonly signal?: AbortSignal },
  ): Promise<{ readonly items: readonly Sandbox[]; readonly nextCursor: string | null }> {
    const { connection, rest } = connectionOf(options);
    const { signal, ...query } = rest;
    const page = await connection.call(routes.listSandboxes, { query: listQuery(query), ...(signal && { signal }) });
    return { items: page.items.map((view) => new Sandbox(connection, view)), nextCursor: page.nextCursor };
  }

  get id(): string {
    return this.#view.id;
  }
  get name(): string | null {
    return this.#view.name;
  }
  get state(): SandboxView['state'] {
    return this.#view.state;
  }
  get generation(): number {
    return this.#view.generation;
  }
  get metadata(): Readonly<Record<string, string>> {
    return this.#view.metadata;
  }
  get expiresAt(): Date | null {
    return this.#view.expiresAt === null ? null : new Date(this.#view.expiresAt);
  }
  get network(): SandboxView['network'] {
    return this.#view.network;
  }
  /** Everything that the server last said about it. */
  get view(): SandboxView {
    return this.#view;
  }

  /**
   * Runs one stateless command. An array runs without a shell, a text with `bash -c`. A command that fails is a result,
   * not an error.
   */
  async exec(command: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    const { timeoutMs: _, ...call } = options;
    const answer = await this.#connection.call(routes.exec, {
      params: { sandboxId: this.id },
      ...this.#bound(call),
      body: execBody(command, options),
      timeoutMs: null,
    });
    return execResultOf(answer);
  }

  get files(): Files {
    return new Files(this.#binding());
  }

  /** git in the sandbox, as stateless commands. */
  get git(): Git {
    return new Git((command, options) => this.exec(command, options));
  }

  /** Commands with a life of their own. */
  get processes(): Processes {
    return new Processes({
      connection: this.#connection,
      sandboxId: this.id,
      bound: (options) => this.#bound(options),
    });
  }

  /** Persistent shells. There is none until one is created. */
  get sessions(): Sessions {
    return new Sessions({ ...this.#binding(), run: (command, options) => this.exec(command, options) });
  }

  /** What listens inside, and what of it is shown outside. */
  get ports(): Ports {
    return new Ports(this.#binding());
  }

  /** Ptys with clients that come and go. */
  get terminals(): Terminals {
    return new Terminals(this.#binding());
  }

  /** Its files as of one instant, to restore, to fork, to begin others with. */
  get checkpoints(): SandboxCheckpoints {
    return new SandboxCheckpoints(this.#binding());
  }

  /** Directories of it as archives that the server keeps. */
  get backups(): SandboxBackups {
    return new SandboxBackups(this.#binding());
  }

  /** Versioned trees that it has at a path. */
  get workspaces(): SandboxWorkspaces {
    return new SandboxWorkspaces(this.#binding());
  }

  /** One of them, by its id or name. */
  workspace(workspace: string): SandboxWorkspace {
    return new SandboxWorkspace(this.#binding(), workspace);
  }

  /** Every process stands still (`memory`, the default), or ends and gives its memory back (`files`). The deadline waits. */
  async pause(options: CallOptions & PauseOptions = {}): Promise<this> {
    const { mode, ...call } = options;
    const body = mode === undefined ? {} : { mode };
    this.#view = await this.#connection.call(routes.pauseSandbox, { ...this.#request(call), body, timeoutMs: null });
    return this;
  }

  /** Goes on after a pause; after one with `files` in a new life, with which this handle goes on. */
  async resume(options: CallOptions & { readonly expiresInMs?: number | null } = {}): Promise<this> {
    const { expiresInMs, ...call } = options;
    const body = expiresInMs === undefined ? {} : { expiresInMs };
    this.#view = await this.#connection.call(routes.resumeSandbox, { ...this.#request(call), body, timeoutMs: null });
    return this;
  }

  /** Puts the files of a checkpoint in place of its own and begins a new life on them; this handle goes on with it. */
  async restore(checkpoint: string, options: CallOptions = {}): Promise<this> {
    const request = { ...this.#request(options), body: { checkpoint }, timeoutMs: null };
    this.#view = await this.#connection.call(routes.restoreSandbox, request);
    return this;
  }

  /** Sandboxes that begin with its files as of one instant. Each is there, or says why not. Repeats are harmless. */
  async fork(options: ForkOptions & CallOptions = {}): Promise<readonly Fork[]> {
    const { idempotencyKey = newIdempotencyKey(), leaseToken, generation, expectedVersion, signal, ...body } = options;
    const call = { idempotencyKey, leaseToken, generation, expectedVersion, signal };
    const request = { ...this.#request(definedOf(call)), body, timeoutMs: null };
    const { items } = await this.#connection.call(routes.forkSandbox, request);
    return items.map(({ sandbox, error }) =>
      sandbox === null
        ? { sandbox: null, error: forkError(error) }
        : { sandbox: new Sandbox(this.#connection, sandbox, { isOwned: true }), error: null },
    );
  }

  /** Ends every process; the files stay. */
  async stop(options: CallOptions & { readonly graceMs?: number } = {}): Promise<this> {
    const { graceMs, ...call } = options;
    const body = graceMs === undefined ? {} : { graceMs };
    this.#view = await this.#connection.call(routes.stopSandbox, { ...this.#request(call), body });
    return this;
  }

  /** Begins a new life on the files; this handle goes on with it. */
  async start(options: CallOptions & { readonly expiresInMs?: number | null } = {}): Promise<this> {
    const { expiresInMs, ...call } = options;
    const body = expiresInMs === undefined ? {} : { expiresInMs };
    this.#view = await this.#connection.call(routes.startSandbox, { ...this.#request(call), body });
    return this;
  }

  /** Ends it and removes its files. With `force` also while somebody else holds its lease. */
  async delete(options: CallOptions & { readonly force?: boolean } = {}): Promise<void> {
    const { force, ...call } = options;
    await this.#connection.call(routes.deleteSandbox, {
      ...this.#request(call),
      query: force === undefined ? {} : { force: force ? 'true' : 'false' },
    });
  }

  /** The same as `delete`. */
  kill(options: CallOptions & { readonly force?: boolean } = {}): Promise<void> {
    return this.delete(options);
  }

  /** Reads `view` anew. Refuses with `stale_generation` when the sandbox is in a later life: `connect` gives that one. */
  async refresh(options: { readonly signal?: AbortSignal } = {}): Promise<this> {
    const view = await this.#connection.call(routes.getSandbox, { params: { sandboxId: this.id }, ...options });
    if (view.generation !== this.generation) {
      throw new PlatformError('stale_generation', `The sandbox ${this.id} has begun a new life since.`, {
        details: { generation: view.generation, expected: this.generation },
      });
    }
    this.#view = view;
    return this;
  }

  /** Changes metadata, deadline and network together, all or none. */
  async update(change: UpdateSandboxOptions, options: CallOptions = {}): Promise<this> {
    this.#view = await this.#connection.call(routes.updateSandbox, { ...this.#request(options), body: change });
    return this;
  }

  /** From now on; null: it never ends by itself. */
  extend(expiresInMs: number | null, options: CallOptions = {}): Promise<this> {
    return this.update({ expiresInMs }, options);
  }

  /** Replaces what of the network it reaches; it holds for open connections too. */
  setNetwork(network: NetworkInput, options: CallOptions = {}): Promise<this> {
    return this.update({ network }, options);
  }

  getMetadata(options: { readonly signal?: AbortSignal } = {}): Promise<MetadataView> {
    return this.#connection.call(routes.getMetadata, { params: { sandboxId: this.id }, ...options });
  }

  /** Merges: a text sets, null or "" removes, other keys stay. `expectedVersion` is the version of the metadata. */
  async patchMetadata(
    patch: Readonly<Record<string, string | null>>,
    options: CallOptions = {},
  ): Promise<MetadataView> {
    const answer = await this.#connection.call(routes.patchMetadata, { ...this.#request(options), body: { ...patch } });
    this.#view = { ...this.#view, metadata: answer.metadata, metadataVersion: answer.version };
    return answer;
  }

  /** Makes it exactly this map, whoever else changes it meanwhile. */
  async setMetadata(metadata: Readonly<Record<string, string>>, options: CallOptions = {}): Promise<MetadataView> {
    for (let attempt = 1; ; attempt++) {
      const current = await this.getMetadata(options.signal ? { signal: options.signal } : {});
      const removed = Object.keys(current.metadata).map((key) => [key, null] as const);
      const patch = { ...Object.fromEntries(removed), ...metadata };
      try {
        return await this.patchMetadata(patch, { ...options, expectedVersion: current.version });
      } catch (error) {
        if (!isPlatformError(error, 'version_mismatch') || attempt >= setMetadataAttempts) throw error;
      }
    }
  }

  metadataHistory(
    options: { readonly cursor?: string; readonly limit?: number; readonly signal?: AbortSignal } = {},
  ): Promise<MetadataHistory> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listMetadataHistory, {
      params: { sandboxId: this.id },
      query,
      ...(signal && { signal }),
    });
  }

  /**
   * Holds an exclusive lease on the sandbox while `work` runs. The handle that `work` gets carries the lease's token; its
   * signal aborts when the lease is lost, and the call is then rejected with `lease_lost`.
   */
  lease<Result>(
    options: Omit<AcquireLeaseOptions, 'resources'>,
    work: (sandbox: Sandbox, held: HeldLease) => Promise<Result>,
  ): Promise<Result> {
    return new Leases(this.#connection).hold({ ...options, resources: [this.id] }, (held) =>
      work(this.withLeaseToken(held.lease.grants[0]!.token), held),
    );
  }

  /** A handle on the same life whose calls carry this token. */
  withLeaseToken(leaseToken: number): Sandbox {
    return new Sandbox(this.#connection, this.#view, { leaseToken });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isOwned) return;
    try {
      await this.delete();
    } catch (error) {
      if (!isPlatformError(error, 'sandbox_not_found')) throw error;
    }
  }

  #binding(): SandboxBinding {
    return { connection: this.#connection, sandboxId: this.id, bound: (options) => this.#bound(options) };
  }

  #request(options: CallOptions) {
    return { params: { sandboxId: this.id }, ...this.#bound(options) };
  }

  #bound(options: CallOptions): CallOptions {
    const { idempotencyKey, leaseToken = this.#leaseToken, generation, expectedVersion, signal } = options;
    return {
      generation: generation ?? this.generation,
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      ...(leaseToken !== undefined && { leaseToken }),
      ...(expectedVersion !== undefined && { expectedVersion }),
      ...(signal && { signal }),
    };
  }
}

function forkError(error: ResultOf<(typeof routes)['forkSandbox']>['items'][number]['error']): PlatformError {
  const { code, message, details } = error ?? { code: 'internal', message: 'It was not said why.', details: {} };
  return new PlatformError(isErrorCode(code) ? code : 'internal', message, { details });
}

function createCall(
  connection: Connection,
  options: CreateSandboxOptions & CreateCall,
  ifExists: 'refuse' | 'get',
): Promise<SandboxView> {
  const { idempotencyKey = newIdempotencyKey(), signal, ...body } = options;
  return connection.call(routes.createSandbox, {
    body: { ...body, ifExists },
    idempotencyKey,
    ...(signal && { signal }),
  });
}

/** Takes the choice of a client out of the options of a call. */
function connectionOf<Options extends ClientChoice>(options: Options) {
  type Rest = Omit<Options, 'client' | keyof ConnectionOptions>;
  if ('client' in options) {
    const { client, ...rest } = options;
    return { connection: client.connection, rest: rest as unknown as Rest };
  }
  const { url, apiKey, fetch, timeoutMs, retries, clock, ...rest } = options;
  const connection = new Connection({
    url,
    apiKey,
    ...(fetch && { fetch }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(retries !== undefined && { retries }),
    ...(clock && { clock }),
  });
  return { connection, rest: rest as unknown as Rest };
}

export function listQuery(options: ListSandboxesOptions): QueryInputOf<(typeof routes)['listSandboxes']> {
  const { state, metadata, mine, ...rest } = options;
  return {
    ...rest,
    ...(state && { state: [...state] }),
    ...(metadata && { metadata: Object.entries(metadata).map(([key, value]) => `${key}=${value}`) }),
    ...(mine !== undefined && { mine: mine ? 'true' : 'false' }),
  };
}
