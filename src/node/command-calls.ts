/** The commands of a node's sandboxes that are run to their end, and what all commands of a sandbox use. */
import type { Clock } from '../base/index.ts';
import { exec, findRun, type InitClient } from '../execution/index.ts';
import {
  type ExecOrder,
  type ExecOutcome,
  type LifeOrder,
  PlatformError,
  type RunReport,
  type SandboxId,
  type SandboxLoad,
} from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { admitExec, admitLook, refuseOlderLife } from './order-rules.ts';

export interface CommandCallsOptions {
  /** Refuses a sandbox that is not here. */
  readonly get: (sandboxId: SandboxId) => { readonly record: NodeRecord; readonly client: InitClient | undefined };
  readonly refuseWhenClosing: () => void;
  readonly clock: Clock;
  /** As the kernel counts it. */
  readonly load: (sandboxId: SandboxId) => Promise<SandboxLoad>;
}

export class CommandCalls {
  readonly #options: CommandCallsOptions;

  constructor(options: CommandCallsOptions) {
    this.#options = options;
  }

  async exec(order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome> {
    this.#options.refuseWhenClosing();
    const { record, client } = this.#options.get(order.sandboxId);
    admitExec(record, order);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing ran.');
    const { clock } = this.#options;
    const context = { client, clock, sandboxEnv: record.spec.env, token: record.settings.leaseToken };
    return await exec(context, order, signal);
  }

  async load(order: LifeOrder): Promise<SandboxLoad> {
    admitLook(this.#options.get(order.sandboxId).record, order);
    return await this.#options.load(order.sandboxId);
  }

  async findRun(order: LifeOrder & { readonly runId: string }): Promise<RunReport> {
    const { record, client } = this.#options.get(order.sandboxId);
    refuseOlderLife(record, order);
    if (client === undefined || order.generation > record.generation) return { kind: 'unknown' };
    return await findRun(client, order.runId);
  }
}
