/** The workspaces of one sandbox: attached, looked at, published, brought up to date, dropped. */
import { type AttachmentView, type BodyInputOf, type ResultOf, routes } from '../protocol/index.ts';
import type { CallOptions } from './connection.ts';
import type { SandboxBinding } from './processes.ts';
import { bodyOf, keyed } from './workspaces.ts';

type Routes = typeof routes;
export type AttachOptions = Omit<BodyInputOf<Routes['attachWorkspace']>, 'workspace'>;
export type CommitOptions = Omit<BodyInputOf<Routes['commitAttachment']>, 'message'>;
export type CommitResult = ResultOf<Routes['commitAttachment']>;
export type SandboxDiff = ResultOf<Routes['diffAttachment']>;

export class SandboxWorkspaces {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** By path. */
  async list(options: { readonly signal?: AbortSignal } = {}): Promise<readonly AttachmentView[]> {
    const { connection, sandboxId } = this.#binding;
    return (await connection.call(routes.listAttachments, { params: { sandboxId }, ...options })).items;
  }

  /** Puts a version into the sandbox, as a checkout in which git works. Repeats are harmless: it has a key of its own. */
  attach(workspace: string, options: AttachOptions & CallOptions = {}): Promise<AttachmentView> {
    const { path, version, ...call } = options;
    const { connection, sandboxId, bound } = this.#binding;
    const body = { workspace, ...(path !== undefined && { path }), ...(version !== undefined && { version }) };
    const request = { params: { sandboxId }, body, timeoutMs: null };
    return connection.call(routes.attachWorkspace, { ...request, ...bound(keyed(call)) });
  }
}

/** One workspace in one sandbox. */
export class SandboxWorkspace {
  readonly #binding: SandboxBinding;
  /** Its id or name. */
  readonly workspace: string;

  constructor(binding: SandboxBinding, workspace: string) {
    this.#binding = binding;
    this.workspace = workspace;
  }

  /** What the sandbox has changed since its base, as of one instant. */
  diff(options: CallOptions & { readonly limit?: number } = {}): Promise<SandboxDiff> {
    const { limit, ...call } = options;
    const body = limit === undefined ? {} : { limit };
    return this.#binding.connection.call(routes.diffAttachment, { ...this.#request(call), body });
  }

  /** The same as a patch that `git apply` takes. */
  async patch(options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return bodyOf(await this.#binding.connection.open(routes.patchAttachment, { ...this.#request(options), body: {} }));
  }

  /** Publishes what the sandbox has changed as the next version. Repeats are harmless: it has a key of its own. */
  commit(message: string, options: CommitOptions & CallOptions = {}): Promise<CommitResult> {
    const { author, trailers, ...call } = options;
    const body = { message, ...(author !== undefined && { author }), ...(trailers !== undefined && { trailers }) };
    return this.#binding.connection.call(routes.commitAttachment, { ...this.#request(keyed(call)), body });
  }

  /** Merges the newest version into the checkout; on a conflict the sandbox stays as it is. */
  update(options: CallOptions = {}): Promise<ResultOf<Routes['updateAttachment']>> {
    return this.#binding.connection.call(routes.updateAttachment, { ...this.#request(keyed(options)), body: {} });
  }

  /** Puts the checkout back to its base, as a whole. */
  drop(options: CallOptions = {}): Promise<AttachmentView> {
    return this.#binding.connection.call(routes.dropAttachment, { ...this.#request(keyed(options)), body: {} });
  }

  /** Its files stay, unless they are to go too. */
  async detach(options: CallOptions & { readonly removeFiles?: boolean } = {}): Promise<void> {
    const { removeFiles = false, ...call } = options;
    const query = { removeFiles: removeFiles ? ('true' as const) : ('false' as const) };
    await this.#binding.connection.call(routes.detachWorkspace, { ...this.#request(keyed(call)), query });
  }

  #request(call: CallOptions) {
    const { sandboxId, bound } = this.#binding;
    return { params: { sandboxId, workspace: this.workspace }, ...bound(call), timeoutMs: null };
  }
}
