/** Stateless commands of a node's sandboxes, and what the sandboxes use of the machine. */
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
import { withTemplate } from './templates/template-orders.ts';

export interface CommandCallsParts {
  readonly get: (sandboxId: SandboxId) => { readonly record: NodeRecord; readonly client: InitClient | undefined };
  /** Throws when nothing may begin any more. */
  readonly admit: () => void;
  readonly clock: () => Clock;
  readonly load: (sandboxId: SandboxId) => Promise<SandboxLoad>;
}

export class CommandCalls {
  readonly #parts: CommandCallsParts;

  constructor(parts: CommandCallsParts) {
    this.#parts = parts;
  }

  async exec(order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome> {
    this.#parts.admit();
    const { record, client } = this.#parts.get(order.sandboxId);
    admitExec(record, order);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing ran.');
    const { settings, spec } = record;
    const context = { client, clock: this.#parts.clock(), sandboxEnv: spec.env, token: settings.leaseToken };
    return await exec(context, withTemplate(record, order), signal);
  }

  async load(order: LifeOrder): Promise<SandboxLoad> {
    admitLook(this.#parts.get(order.sandboxId).record, order);
    return await this.#parts.load(order.sandboxId);
  }

  async findRun(order: LifeOrder & { readonly runId: string }): Promise<RunReport> {
    const { record, client } = this.#parts.get(order.sandboxId);
    refuseOlderLife(record, order);
    if (client === undefined || order.generation > record.generation) return { kind: 'unknown' };
    return await findRun(client, order.runId);
  }
}
