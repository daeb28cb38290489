/** Checkpoints: those of one sandbox, and all that a key can see. */
import { type BodyInputOf, type CheckpointView, type QueryInputOf, type ResultOf, routes } from '../protocol/index.ts';
import type { CallOptions, Connection } from './connection.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import type { SandboxBinding } from './processes.ts';

type Routes = typeof routes;
type Look = { readonly signal?: AbortSignal };
export type CheckpointPage = ResultOf<Routes['listCheckpoints']>;
export type CreateCheckpointOptions = BodyInputOf<Routes['createCheckpoint']> & CallOptions;
export type ListCheckpointsOptions = QueryInputOf<Routes['listCheckpoints']> & Look;

export class SandboxCheckpoints {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** Keeps the files as of one instant. Repeats are harmless: it has a key of its own. */
  create(options: CreateCheckpointOptions = {}): Promise<CheckpointView> {
    const { name, expiresInMs, ...call } = options;
    const { connection, sandboxId, bound } = this.#binding;
    return connection.call(routes.createCheckpoint, {
      params: { sandboxId },
      ...bound({ idempotencyKey: newIdempotencyKey(), ...call }),
      body: { ...(name !== undefined && { name }), ...(expiresInMs !== undefined && { expiresInMs }) },
      timeoutMs: null,
    });
  }

  /** One page, newest first. */
  list(options: Omit<ListCheckpointsOptions, 'sandboxId'> = {}): Promise<CheckpointPage> {
    return new Checkpoints(this.#binding.connection).list({ ...options, sandboxId: this.#binding.sandboxId });
  }
}

export class Checkpoints {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** One page, newest first; those of sandboxes that are gone too. */
  list(options: ListCheckpointsOptions = {}): Promise<CheckpointPage> {
    const { signal, ...query } = options;
    return this.#connection.call(routes.listCheckpoints, { query, ...(signal && { signal }) });
  }

  get(checkpointId: string, options: Look = {}): Promise<CheckpointView> {
    return this.#connection.call(routes.getCheckpoint, { params: { checkpointId }, ...options });
  }

  /** Waits while something is being made from it; what was made from it goes on without it. */
  async delete(checkpointId: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.deleteCheckpoint, { params: { checkpointId }, ...options });
  }
}
