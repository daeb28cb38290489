/** E2B's calls that pause, resume, copy and keep sandboxes, each as calls of control. */
import { z } from 'zod';
import { errorCatalog, isErrorCode, isPlatformError, pageLimitMax } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { parsePart } from '../invalid-request.ts';
import { timeoutMs } from './create-body.ts';
import { E2bError, notSupported } from './e2b-error.ts';
import type { Asked, SandboxCalls, Told } from './sandbox-calls.ts';
import { type SandboxSeen, type SandboxViews, stateOf } from './sandbox-views.ts';
import { findSnapshot, snapshotInfo, snapshotName } from './snapshots.ts';

const connectTimeoutS = 300;
/** Of the first generation, and of forks. */
const shortTimeoutS = 15;
const forksMax = 100;

const pauseBody = z.strictObject({ memory: z.boolean().nullish() });
const connectBody = z.strictObject({ timeout: z.number().nullish(), memory: z.boolean().nullish() });
const resumeBody = connectBody.extend({ autoPause: z.boolean().nullish() });
const forkBody = z.strictObject({ timeout: z.number().nullish(), count: z.int().nullish() });
const snapshotBody = z.strictObject({ name: z.string().nullish() });
const snapshotQuery = z.strictObject({
  sandboxID: z.string().optional(),
  name: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(100).default(100),
  nextToken: z.string().max(200).optional(),
});

export class LifecycleCalls {
  readonly #control: ControlPort;
  readonly #views: SandboxViews;
  readonly #sandboxes: SandboxCalls;

  constructor(control: ControlPort, views: SandboxViews, sandboxes: SandboxCalls) {
    this.#control = control;
    this.#views = views;
    this.#sandboxes = sandboxes;
  }

  async pause(asked: Asked): Promise<Told> {
    const { memory } = parsePart(pauseBody, 'body', asked.body);
    const seen = await this.#sandboxes.get(asked);
    if (stateOf(seen) === 'paused') throw new E2bError(409, `Sandbox ${seen.id} is paused already.`);
    const mode = memory === false ? 'files' : 'memory';
    await this.#control.pauses.pause(asked.caller, seen.id, asked.conditions, { mode });
    return { status: 204 };
  }

  /** Of one that runs: it stays for at least this long. Of one that is paused: it goes on, for this long. */
  async connect(asked: Asked): Promise<Told> {
    const { timeout, memory } = parsePart(connectBody, 'body', asked.body);
    const wantedMs = timeoutMs(timeout ?? connectTimeoutS);
    const seen = await this.#sandboxes.get(asked);
    if (stateOf(seen) === 'running') {
      return { status: 200, body: this.#views.opened(await this.#sandboxes.extend(asked, wantedMs)) };
    }
    return await this.#resume(asked, seen, { wantedMs, isCold: memory === false });
  }

  async resume(asked: Asked): Promise<Told> {
    const { timeout, memory, autoPause } = parsePart(resumeBody, 'body', asked.body);
    if (autoPause !== undefined && autoPause !== null) throw notSupported('Changing autoPause with a resume is');
    const seen = await this.#sandboxes.get(asked);
    if (stateOf(seen) === 'running') throw new E2bError(409, `Sandbox ${seen.id} is running.`);
    return await this.#resume(asked, seen, { wantedMs: timeoutMs(timeout ?? shortTimeoutS), isCold: memory === false });
  }

  async fork(asked: Asked): Promise<Told> {
    const { timeout, count } = parsePart(forkBody, 'body', asked.body);
    const forks = count ?? 1;
    if (forks < 1 || forks > forksMax) throw new E2bError(400, `count is 1 to ${forksMax}.`);
    const seen = await this.#sandboxes.get(asked);
    if (stateOf(seen) !== 'running') throw new E2bError(409, `Sandbox ${seen.id} is ${seen.state}.`);
    const { items } = await this.#control.forks.fork(asked.caller, seen.id, asked.conditions, {
      ...{ count: forks, metadata: 'inherit', limits: {}, expiresInMs: timeoutMs(timeout ?? shortTimeoutS) },
      ...{ onExpiry: seen.onExpiry, autoResume: seen.autoResume },
    });
    const body = items.map(({ sandbox, error }) =>
      sandbox === null ? { error: forkError(error) } : { sandbox: this.#views.opened(sandbox) },
    );
    return { status: 201, body };
  }

  async snapshot(asked: Asked): Promise<Told> {
    const { name } = parsePart(snapshotBody, 'body', asked.body);
    const seen = await this.#sandboxes.get(asked);
    const body = { ...(name && { name: snapshotName(name) }), expiresInMs: null };
    const made = await this.#control.checkpoints.create(asked.caller, seen.id, asked.conditions, body);
    return { status: 201, body: snapshotInfo(made) };
  }

  async listSnapshots({ caller, search }: Asked): Promise<Told> {
    const query = parsePart(snapshotQuery, 'query', Object.fromEntries(new URLSearchParams(search)));
    const { items, nextCursor } = await this.#control.checkpoints.list(caller, {
      ...(query.sandboxID !== undefined && { sandboxId: query.sandboxID as SandboxSeen['id'] }),
      ...(query.name !== undefined && { name: snapshotName(query.name) }),
      ...(query.nextToken && { cursor: query.nextToken }),
      limit: Math.min(query.limit, pageLimitMax),
    });
    return {
      status: 200,
      body: items.filter(({ state }) => state === 'ready').map(snapshotInfo),
      ...(nextCursor !== null && { headers: { 'X-Next-Token': nextCursor } }),
    };
  }

  /** False: it names no snapshot. */
  async deleteSnapshot({ caller, conditions }: Asked, wanted: string): Promise<boolean> {
    const id = await findSnapshot(this.#control, caller, wanted);
    if (id === undefined) return false;
    try {
      await this.#control.checkpoints.delete(caller, id, conditions);
      return true;
    } catch (error) {
      if (isPlatformError(error, 'checkpoint_not_found')) return false;
      throw error;
    }
  }

  async #resume(asked: Asked, seen: SandboxSeen, how: { wantedMs: number; isCold: boolean }): Promise<Told> {
    if (how.isCold && seen.paused?.mode === 'memory') {
      throw notSupported('Leaving the memory of a paused sandbox behind (memory: false) is');
    }
    const body = { expiresInMs: how.wantedMs };
    const resumed = await this.#control.pauses.resume(asked.caller, seen.id, asked.conditions, body);
    return { status: 201, body: this.#views.opened(resumed) };
  }
}

function forkError(error: { readonly code: string; readonly message: string } | null) {
  const code = error !== null && isErrorCode(error.code) ? errorCatalog[error.code].status : 500;
  return { code, message: error?.message ?? 'It was not made.' };
}
