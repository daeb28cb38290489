/** Workspaces: versioned trees that sandboxes attach and publish to. Each is named by its id or its name. */
import {
  type AnyRoute,
  type BodyInputOf,
  PlatformError,
  type QueryInputOf,
  type ResultOf,
  routes,
  type WorkspaceDiff,
  type WorkspaceVersionView,
  type WorkspaceView,
} from '../protocol/index.ts';
import type { CallOptions, CallRequest, Connection } from './connection.ts';
import { type ByteStream, contentOf } from './file-content.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import type { Answer } from './send.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
export type WorkspacePage = ResultOf<Routes['listWorkspaces']>;
export type WorkspaceDetails = ResultOf<Routes['getWorkspace']>;
export type WorkspaceVersionPage = ResultOf<Routes['listWorkspaceVersions']>;
export type WorkspaceVersionDetails = ResultOf<Routes['getWorkspaceVersion']>;
export type CreateWorkspaceOptions = Omit<BodyInputOf<Routes['createWorkspace']>, 'name'>;
export type ImportOptions = QueryInputOf<Routes['importWorkspace']>;
export type RemoteOptions = BodyInputOf<Routes['importWorkspaceRemote']>;
export type PushOptions = BodyInputOf<Routes['pushWorkspace']>;
export type ExportOptions = QueryInputOf<Routes['exportWorkspace']>;
export type DiffOptions = QueryInputOf<Routes['diffWorkspace']>;
export type RevertOptions = BodyInputOf<Routes['revertWorkspace']>;

export class Workspaces {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Its first version is empty, or with `content: 'none'` whatever is imported first. Repeats are harmless: it has a key of its own. */
  create(name: string, options: CreateWorkspaceOptions & CallOptions = {}): Promise<WorkspaceView> {
    const { content, ...call } = options;
    const body = { name, ...(content !== undefined && { content }) };
    return this.#connection.call(routes.createWorkspace, { body, ...keyed(call) });
  }

  /** One page, newest first. */
  list(options: QueryInputOf<Routes['listWorkspaces']> & Look = {}): Promise<WorkspacePage> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listWorkspaces, { query, ...(signal && { signal }) });
  }

  get(workspace: string, options: Look = {}): Promise<WorkspaceDetails> {
    return this.#connection.call(routes.getWorkspace, { params: { workspace }, ...options });
  }

  /** With all its versions. Refused while sandboxes have it. */
  async delete(workspace: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.deleteWorkspace, { params: { workspace }, ...keyed(options), timeoutMs: null });
  }

  /** Adds a git bundle, or a tar of a directory, as the next version. */
  import(
    workspace: string,
    data: ByteStream | Uint8Array | Blob,
    options: ImportOptions & CallOptions,
  ): Promise<WorkspaceVersionView> {
    const { kind, ref, message, expectedHead, ...call } = options;
    const query = {
      kind,
      ...(ref !== undefined && { ref }),
      ...(message !== undefined && { message }),
      ...(expectedHead !== undefined && { expectedHead }),
    };
    const request = { params: { workspace }, query, content: contentOf(data), timeoutMs: null };
    return this.#connection.call(routes.importWorkspace, { ...request, ...call });
  }

  /** Adds a commit of a git remote, which the server reaches, as the next version. */
  importRemote(workspace: string, remote: RemoteOptions, options: CallOptions = {}): Promise<WorkspaceVersionView> {
    const request = { params: { workspace }, body: remote, timeoutMs: null };
    return this.#connection.call(routes.importWorkspaceRemote, { ...request, ...keyed(options) });
  }

  /** Moves a branch of a git remote to a version. */
  push(workspace: string, remote: PushOptions, options: CallOptions = {}): Promise<ResultOf<Routes['pushWorkspace']>> {
    const request = { params: { workspace }, body: remote, timeoutMs: null };
    return this.#connection.call(routes.pushWorkspace, { ...request, ...keyed(options) });
  }

  /** A git bundle, or a tar of the files. */
  export(workspace: string, options: ExportOptions & Look = {}): Promise<ReadableStream<Uint8Array>> {
    const { signal, ...query } = options;
    return this.#bytes(routes.exportWorkspace, { params: { workspace }, query, ...(signal && { signal }) });
  }

  /** One page, newest first. */
  versions(
    workspace: string,
    options: QueryInputOf<Routes['listWorkspaceVersions']> & Look = {},
  ): Promise<WorkspaceVersionPage> {
    const { signal, ...query } = options;
    const request = { params: { workspace }, query, ...(signal && { signal }) };
    return this.#connection.call(routes.listWorkspaceVersions, request);
  }

  version(workspace: string, number: number, options: Look = {}): Promise<WorkspaceVersionDetails> {
    return this.#connection.call(routes.getWorkspaceVersion, { params: { workspace, number }, ...options });
  }

  /** Between two versions; without `to`: to the newest. */
  diff(workspace: string, options: DiffOptions & Look): Promise<WorkspaceDiff> {
    const { signal, ...query } = options;
    const request = { params: { workspace }, query, ...(signal && { signal }) };
    return this.#connection.call(routes.diffWorkspace, request);
  }

  /** The same as a patch that `git apply` takes. */
  patch(workspace: string, options: Omit<DiffOptions, 'limit'> & Look): Promise<ReadableStream<Uint8Array>> {
    const { signal, ...query } = options;
    return this.#bytes(routes.patchWorkspace, { params: { workspace }, query, ...(signal && { signal }) });
  }

  /** One side of a conflict, by the name that its details give. */
  readBlob(workspace: string, blob: string, options: Look = {}): Promise<ReadableStream<Uint8Array>> {
    return this.#bytes(routes.readWorkspaceBlob, { params: { workspace, blob }, ...options });
  }

  /** A new version that equals an earlier one. */
  revert(workspace: string, body: RevertOptions, options: CallOptions = {}): Promise<WorkspaceVersionView> {
    const request = { params: { workspace }, body, timeoutMs: null };
    return this.#connection.call(routes.revertWorkspace, { ...request, ...keyed(options) });
  }

  async #bytes<Route extends AnyRoute>(route: Route, request: CallRequest<Route>): Promise<ReadableStream<Uint8Array>> {
    return bodyOf(await this.#connection.open(route, { ...request, timeoutMs: null }));
  }
}

export function bodyOf({ body }: Pick<Answer, 'body'>): ReadableStream<Uint8Array> {
  if (body === null) throw new PlatformError('server_unreachable', 'The answer broke off.');
  return body;
}

export function keyed<Options extends CallOptions>(options: Options): Options & { readonly idempotencyKey: string } {
  return { ...options, idempotencyKey: options.idempotencyKey ?? newIdempotencyKey() };
}
