/**
 * Pause and resume. Each is recorded as begun, ordered on the node, recorded as done, in the sandbox's lane. With `memory` the node lets every
 * process stand still; with `files` it ends them, and the next generation begins when the sandbox is resumed.
 *
 * While it is paused it has no deadline: what was left of it is kept in the state.
 */
import { assert } from '../base/index.ts';
import {
  type BodyOf,
  type Conditions,
  type PauseMode,
  PlatformError,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { type LifeChanges, overtaken } from './life-changes.ts';
import { transitionDeadline } from './lifecycle.ts';
import type { Lane } from './sandbox-lanes.ts';
import { promisesNoChange, type SandboxRecords, settingsOf } from './sandbox-records.ts';

/** Between TERM and KILL, of a pause that ends every process. */
const pauseGraceMs = 2_000;
/** What a sandbox gets that its deadline has paused, and that is resumed without a word about the next one. */
const afterExpiryMs = 5 * 60_000;

/** Who changes it; `isRepeat`: an earlier order for the same may still be on its way. */
export interface ChangeMark {
  readonly by: string;
  readonly operationId: string | null;
  readonly isRepeat: boolean;
}

export class SandboxPauses {
  readonly #context: ControlContext;
  readonly #records: SandboxRecords;
  readonly #changes: LifeChanges;

  constructor(context: ControlContext, parts: { records: SandboxRecords; changes: LifeChanges }) {
    this.#context = context;
    this.#records = parts.records;
    this.#changes = parts.changes;
  }

  async pause(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.pauseSandbox>,
  ): Promise<SandboxView> {
    const { mode } = body;
    if (mode === 'image') {
      const message =
        'Memory cannot be kept on disk here: no isolation driver of this node does it reliably. Use "memory" or "files".';
      throw new PlatformError('pause_unsupported', message, { details: { mode } });
    }
    return await this.#changes.run(
      { caller, sandboxId, conditions, kind: 'pauseSandbox', body },
      {
        effect: (lane, record, { id }) => this.#pause(lane, record, mode, markOf(caller.keyId, id)),
        // Entering the lane has settled what was begun: it is paused, or it never was.
        rest: async (_lane, record, { operation, generation }) => {
          if (record.generation !== generation) throw overtaken(operation, 'Another life was begun since.');
          return record.state.kind === 'paused' ? record : undefined;
        },
      },
    );
  }

  resume(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.resumeSandbox>,
  ): Promise<SandboxView> {
    return this.#changes.run(
      { caller, sandboxId, conditions, kind: 'resumeSandbox', body },
      {
        effect: (lane, record, { id }) => this.#resume(lane, record, body.expiresInMs, markOf(caller.keyId, id)),
        rest: async (_lane, record, { operation, generation }) => {
          const isOver = record.generation > generation + 1 || record.state.kind === 'stopped';
          if (isOver) throw overtaken(operation, 'It was begun, and is over.');
          return record.state.kind === 'running' ? record : undefined;
        },
      },
    );
  }

  /** Traffic has come for it. However many come at once, it is resumed once. */
  wake(sandboxId: SandboxId): Promise<SandboxRecord> {
    return this.#context.lanes.run(sandboxId, async (lane) => {
      const record = await this.#records.find(sandboxId);
      if (record === undefined) throw new PlatformError('sandbox_not_found', `There is no sandbox ${sandboxId}.`);
      if (record.state.kind !== 'paused' || !record.autoResume) return record;
      return await this.#resume(lane, record, undefined, markOf('traffic', null));
    });
  }

  async #pause(lane: Lane, record: SandboxRecord, mode: PauseMode, mark: ChangeMark): Promise<SandboxRecord> {
    const { expiresAtMs } = record;
    const next = this.#records.after(record, { kind: 'pause', mode, expiresAtMs, untilMs: this.#untilMs() });
    if (next.state === record.state) return record;
    const pausing = { ...next, expiresAtMs: null };
    const begun = await this.#records.commit(lane, {
      record: pausing,
      events: [{ kind: 'sandbox.pausing', data: { mode } }],
    });
    await this.#context.faults.hit('after-store-pausing');
    return await this.finishPause(lane, begun, mark);
  }

  /** The rest of a pause, also after a crash. */
  async finishPause(lane: Lane, begun: SandboxRecord, mark: ChangeMark): Promise<SandboxRecord> {
    const { nodes, faults, clock } = this.#context;
    const { state } = begun;
    assert(state.kind === 'pausing', 'A pause was begun.');
    const { id: sandboxId, generation, version } = begun;
    try {
      await nodes.call(begun.nodeId, (node) =>
        state.mode === 'memory'
          ? node.branches.pause({ sandboxId, generation, version, settings: settingsFor(begun, mark) })
          : node.stopSandbox({ sandboxId, generation, graceMs: pauseGraceMs }),
      );
    } catch (error) {
      if (this.#isRefused(begun, error, mark)) {
        const stayed = this.#records.after(begun, { kind: 'stayed' });
        const data = { why: `It could not be paused: ${error.message}` };
        await this.#goBack(lane, { ...stayed, expiresAtMs: state.expiresAtMs }, 'sandbox.pause_failed', data);
      } else this.#context.lanes.doubt(lane);
      throw error;
    }
    await faults.hit('after-pause-on-node');
    return await this.recordPaused(lane, begun, { atMs: clock.nowMs(), reason: 'requested' });
  }

  /** The node has paused it, as was asked or because its deadline came. */
  async recordPaused(
    lane: Lane,
    record: SandboxRecord,
    how: { readonly atMs: number; readonly reason: 'requested' | 'expired' },
  ): Promise<SandboxRecord> {
    const { state } = record;
    const mode = state.kind === 'pausing' ? state.mode : 'memory';
    const deadlineMs = state.kind === 'pausing' ? state.expiresAtMs : record.expiresAtMs;
    const leftMs = deadlineMs === null ? null : Math.max(0, deadlineMs - how.atMs);
    const paused = this.#records.after(record, { kind: 'paused', mode, leftMs, ...how });
    return await this.#records.commitAfterNode(lane, {
      record: { ...paused, expiresAtMs: null },
      events: [{ kind: 'sandbox.paused', data: { mode, reason: how.reason } }],
    });
  }

  async #resume(
    lane: Lane,
    record: SandboxRecord,
    expiresInMs: number | null | undefined,
    mark: ChangeMark,
  ): Promise<SandboxRecord> {
    const next = this.#records.after(record, { kind: 'resume', untilMs: this.#untilMs() });
    if (next.state === record.state || record.state.kind !== 'paused') return record;
    const resuming = {
      ...next,
      generation: record.generation + (record.state.mode === 'files' ? 1 : 0),
      expiresAtMs: deadlineAfter(record, expiresInMs, this.#context.clock.nowMs()),
    };
    const begun = await this.#records.commit(lane, { record: resuming, events: [{ kind: 'sandbox.resuming' }] });
    await this.#context.faults.hit('after-store-resuming');
    return await this.finishResume(lane, begun, mark);
  }

  /** The rest of a resume, also after a crash. */
  async finishResume(lane: Lane, begun: SandboxRecord, mark: ChangeMark): Promise<SandboxRecord> {
    const { nodes, faults, clock } = this.#context;
    const { state } = begun;
    assert(state.kind === 'resuming', 'A resume was begun.');
    const isNewLife = state.paused.mode === 'files';
    const { id: sandboxId, generation, version } = begun;
    const order = { sandboxId, generation, version, settings: settingsFor(begun, mark) };
    try {
      await nodes.call(begun.nodeId, (node) => (isNewLife ? node.startSandbox(order) : node.branches.resume(order)));
    } catch (error) {
      if (this.#isRefused(begun, error, mark)) {
        const back = this.#records.after(begun, { kind: 'refused', why: error.message, atMs: clock.nowMs() });
        // The life was never begun, so its number is not used up.
        const asBefore = { ...back, generation: generation - (isNewLife ? 1 : 0), expiresAtMs: null };
        await this.#goBack(lane, asBefore, 'sandbox.resume_failed', { why: error.message });
      } else this.#context.lanes.doubt(lane);
      throw error;
    }
    await faults.hit('after-resume-on-node');
    const running = this.#records.after(begun, { kind: 'confirmed' });
    const data = { mode: state.paused.mode, by: mark.by };
    return await this.#records.commitAfterNode(lane, { record: running, events: [{ kind: 'sandbox.resumed', data }] });
  }

  async #goBack(lane: Lane, record: SandboxRecord, kind: string, data: Readonly<Record<string, unknown>>) {
    await this.#records.commitAfterNode(lane, { record, events: [{ kind, data }] });
    // The node may know better (its life may have ended), and what is late must find a newer version there.
    this.#context.lanes.doubt(lane);
  }

  /** A node that is out of reach promises nothing about an earlier order; past the deadline the transition is given up all the same. */
  #isRefused(begun: SandboxRecord, error: unknown, mark: ChangeMark): error is PlatformError {
    if (!promisesNoChange(error)) return false;
    if (!mark.isRepeat || error.retry !== 'backoff') return true;
    return (transitionDeadline(begun.state) ?? 0) <= this.#context.clock.nowMs();
  }

  #untilMs(): number {
    return this.#context.clock.nowMs() + this.#context.settings.transitionMs;
  }
}

/** When a sandbox ends that goes on now: as asked, or with the time that it had left. */
export function deadlineAfter(
  record: SandboxRecord,
  expiresInMs: number | null | undefined,
  nowMs: number,
): number | null {
  if (expiresInMs !== undefined) return expiresInMs === null ? null : nowMs + expiresInMs;
  if (record.state.kind !== 'paused') return record.expiresAtMs;
  const { leftMs, reason } = record.state;
  if (reason === 'expired') return nowMs + Math.max(leftMs ?? 0, afterExpiryMs);
  return leftMs === null ? null : nowMs + leftMs;
}

/** The same in a repeat, where the record is the same. */
export function settingsFor(begun: SandboxRecord, mark: Pick<ChangeMark, 'by' | 'operationId'>) {
  return settingsOf(begun, { by: mark.by, atMs: begun.updatedAtMs, operationId: mark.operationId });
}

function markOf(by: string, operationId: string | null): ChangeMark {
  return { by, operationId, isRepeat: false };
}
