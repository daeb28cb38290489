/** E2B's calls about sandboxes, each as calls of control. Who asks, and whether they may, is settled before. */
import { z } from 'zod';
import type { Caller } from '../../control/index.ts';
import { type Conditions, isPlatformError, pageLimitMax, type SandboxId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { parsePart } from '../invalid-request.ts';
import { createBodyOf, parseCreateBody, timeoutMs } from './create-body.ts';
import { E2bError } from './e2b-error.ts';
import { pageOf, parseListQuery } from './list-query.ts';
import { egressSettings, policyOf } from './network-settings.ts';
import { refuseReserved } from './sandbox-marks.ts';
import { notFound, type SandboxSeen, type SandboxViews, stateOf } from './sandbox-views.ts';
import { sourceOf } from './template-names.ts';

export interface Asked {
  readonly caller: Caller;
  readonly conditions: Conditions;
  readonly body: unknown;
  /** With the question mark, or empty. */
  readonly search: string;
  /** Decoded. */
  readonly params: Readonly<Record<string, string>>;
}

export interface Told {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const noContent: Told = { status: 204 };
/** Of the first generation of paths, and of what extends. */
const shortTimeoutS = 15;
/** Attempts against others who change the same sandbox. */
const extendAttempts = 10;

const timeoutBody = z.strictObject({ timeout: z.number() });
const refreshBody = z.strictObject({ duration: z.number().nullish() });
const networkBody = egressSettings.extend({ allow_internet_access: z.boolean().nullish() }).strict();
const metadataBody = z.record(z.string(), z.string().nullable());

export class SandboxCalls {
  readonly #control: ControlPort;
  readonly #views: SandboxViews;

  constructor(control: ControlPort, views: SandboxViews) {
    this.#control = control;
    this.#views = views;
  }

  async create(asked: Asked, defaults: { readonly timeoutS: number }): Promise<Told> {
    const wanted = parseCreateBody(asked.body, defaults.timeoutS);
    const source = await sourceOf(this.#control, asked.caller, wanted.templateID);
    const body = createBodyOf(wanted, source);
    try {
      const { view } = await this.#control.sandboxes.create(asked.caller, asked.conditions, body);
      return { status: 201, body: this.#views.opened(view) };
    } catch (error) {
      if (!isPlatformError(error, 'template_not_found', 'checkpoint_not_found')) throw error;
      throw new E2bError(404, `template '${wanted.templateID}' not found`, { cause: error });
    }
  }

  async list(asked: Asked): Promise<Told> {
    const query = parseListQuery(asked.search);
    const all = await this.#all(asked.caller, query.metadata);
    const { items, nextToken, running } = pageOf(all, query);
    return {
      status: 200,
      body: items.map((seen) => this.#views.listed(seen)),
      headers: {
        ...(nextToken !== undefined && { 'X-Next-Token': nextToken }),
        ...(query.states.has('running') && { 'X-Total-Running': String(running) }),
      },
    };
  }

  /** The first generation's: those that run, in one piece. */
  async listRunning(asked: Asked): Promise<Told> {
    const { metadata } = parseListQuery(asked.search);
    const all = await this.#all(asked.caller, metadata);
    const running = all.filter((seen) => stateOf(seen) === 'running');
    return { status: 200, body: running.map((seen) => this.#views.listed(seen)) };
  }

  async info(asked: Asked): Promise<Told> {
    return { status: 200, body: this.#views.detailed(await this.get(asked)) };
  }

  async kill(asked: Asked): Promise<Told> {
    const seen = await this.get(asked);
    await this.#control.sandboxes.delete(asked.caller, seen.id, asked.conditions, { force: false });
    return noContent;
  }

  async refresh(asked: Asked): Promise<Told> {
    const { duration } = parsePart(refreshBody, 'body', asked.body);
    await this.extend(asked, timeoutMs(Math.max(shortTimeoutS, duration ?? 0)));
    return noContent;
  }

  async setTimeout(asked: Asked): Promise<Told> {
    const { timeout } = parsePart(timeoutBody, 'body', asked.body);
    const seen = await this.#getRunning(asked);
    // Nothing left is the smallest time there is.
    const expiresInMs = timeout > 0 ? timeoutMs(timeout) : 1;
    await this.#control.sandboxes.update(asked.caller, seen.id, asked.conditions, { expiresInMs });
    return noContent;
  }

  async setNetwork(asked: Asked): Promise<Told> {
    const { allow_internet_access: internet, ...egress } = parsePart(networkBody, 'body', asked.body);
    const seen = await this.#getRunning(asked);
    // A full replacement: what is not said is open.
    const network = policyOf(egress, internet ?? true)!;
    await this.#control.sandboxes.update(asked.caller, seen.id, asked.conditions, { network });
    return noContent;
  }

  async patchMetadata(asked: Asked): Promise<Told> {
    const patch = parsePart(metadataBody, 'body', asked.body);
    refuseReserved(patch);
    const seen = await this.get(asked);
    if (stateOf(seen) !== 'running') throw new E2bError(409, `Sandbox ${seen.id} is ${seen.state}.`);
    await this.#control.metadata.patch(asked.caller, seen.id, asked.conditions, patch);
    return noContent;
  }

  /** What happened to it, in order: the nearest that there is to a log of a sandbox. */
  async logs(asked: Asked, generation: 'v1' | 'v2'): Promise<Told> {
    const seen = await this.get(asked);
    const { items } = await this.#control.events.list(asked.caller, { sandboxId: seen.id, limit: pageLimitMax });
    const logs = items.map((event) => ({
      timestamp: event.at,
      level: 'info' as const,
      message: event.kind,
      fields: Object.fromEntries(Object.entries(event.data).map(([name, value]) => [name, String(value)])),
    }));
    const lines = logs.map(({ timestamp, message }) => ({ timestamp, line: message }));
    return { status: 200, body: generation === 'v2' ? { logs } : { logs: lines, logEntries: logs } };
  }

  /** One that is there for E2B's clients. */
  async get({ caller, params }: Asked): Promise<SandboxSeen> {
    const sandboxId = params['sandboxID'] as SandboxId;
    const seen = await this.#control.sandboxes.get(caller, sandboxId).catch((error: unknown) => {
      throw isPlatformError(error, 'sandbox_not_found') ? notFound(sandboxId) : error;
    });
    if (stateOf(seen) === undefined) throw notFound(sandboxId);
    return seen;
  }

  async #getRunning(asked: Asked): Promise<SandboxSeen> {
    const seen = await this.get(asked);
    if (stateOf(seen) !== 'running') throw notFound(seen.id);
    return seen;
  }

  /** Never shortens: whoever comes between is looked at again. */
  async extend(asked: Asked, wantedMs: number): Promise<SandboxSeen> {
    for (let attempt = 1; ; attempt++) {
      const seen = await this.#getRunning(asked);
      if (seen.expiresAt === null || Date.parse(seen.expiresAt) >= Date.now() + wantedMs) return seen;
      const conditions = { ...asked.conditions, expectedVersion: seen.version };
      try {
        return await this.#control.sandboxes.update(asked.caller, seen.id, conditions, { expiresInMs: wantedMs });
      } catch (error) {
        if (!isPlatformError(error, 'version_mismatch') || attempt === extendAttempts) throw error;
      }
    }
  }

  async #all(caller: Caller, metadata: readonly string[]): Promise<SandboxSeen[]> {
    const all: SandboxSeen[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await this.#control.sandboxes.list(caller, {
        state: ['running', 'pausing', 'paused', 'resuming'],
        ...(metadata.length > 0 && { metadata: [...metadata] }),
        ...(cursor && { cursor }),
        limit: pageLimitMax,
      });
      all.push(...page.items);
      cursor = page.nextCursor;
    } while (cursor !== null);
    return all;
  }
}
