/**
 * Metadata, deadline, network and what happens by itself, of a running or paused sandbox: one update, applied on node and record all or
 * none. What is paused has no deadline: a new one is what it has left when it is resumed.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  type NetworkPolicy,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type SandboxId,
  type SandboxView,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { CallParts } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { parseNumberCursor } from './cursors.ts';
import { checkExpected, type MetadataPatch, mergeMetadata } from './metadata-rules.ts';
import type { Operation } from './mutations.ts';
import { checkGeneration, checkVersion, notRunning, type PendingEvent, versionMismatch } from './sandbox-records.ts';

interface Update {
  readonly metadata?: MetadataPatch | undefined;
  readonly expectMetadata?: MetadataPatch | undefined;
  readonly expiresInMs?: number | null | undefined;
  readonly network?: NetworkPolicy | undefined;
  readonly onExpiry?: SandboxRecord['onExpiry'] | undefined;
  readonly autoResume?: boolean | undefined;
  readonly keepCheckpoints?: number | null | undefined;
}

interface Work<Result> {
  readonly effect: (operation: Operation) => Promise<SandboxRecord>;
  readonly view: (record: SandboxRecord) => Promise<Result>;
  readonly isBeyondHistory: boolean;
}

type MetadataView = ResultOf<typeof routes.getMetadata>;

export class MetadataService {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async get(caller: Caller, sandboxId: SandboxId): Promise<MetadataView> {
    return viewOf(await this.#parts.records.get(caller, sandboxId));
  }

  /** `expectedVersion` is the metadata's own. */
  patch(caller: Caller, sandboxId: SandboxId, conditions: Conditions, patch: MetadataPatch): Promise<MetadataView> {
    const { expectedVersion, ...others } = conditions;
    const versioned = (record: SandboxRecord) => {
      if (expectedVersion !== undefined && expectedVersion !== record.metadataVersion) {
        throw versionMismatch(record.metadataVersion);
      }
    };
    const asked = { sandboxId, conditions, kind: 'patchMetadata', body: patch };
    const effect = (operation: Operation) =>
      this.#apply({ caller, sandboxId, conditions: others, operation, versioned }, { metadata: patch });
    return this.#mutate(caller, asked, { effect, view: async (record) => viewOf(record), isBeyondHistory: false });
  }

  update(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<typeof routes.updateSandbox>,
  ): Promise<SandboxView> {
    const asked = { sandboxId, conditions, kind: 'updateSandbox', body };
    const versioned = (record: SandboxRecord) => checkVersion(record, conditions);
    const effect = (operation: Operation) => this.#apply({ caller, sandboxId, conditions, operation, versioned }, body);
    const { metadata: _, expectMetadata: __, ...beyond } = body;
    const isBeyondHistory = Object.values(beyond).some((value) => value !== undefined);
    return this.#mutate(caller, asked, { effect, view: (record) => this.#parts.records.view(record), isBeyondHistory });
  }

  async history(
    caller: Caller,
    sandboxId: SandboxId,
    query: QueryOf<typeof routes.listMetadataHistory>,
  ): Promise<ResultOf<typeof routes.listMetadataHistory>> {
    await this.#parts.records.get(caller, sandboxId);
    const before = query.cursor === undefined ? {} : { before: parseNumberCursor(query.cursor) };
    const found = await this.#context.store.read((tables) =>
      tables.history.list({ sandboxId, limit: query.limit + 1, ...before }),
    );
    const shown = found.slice(0, query.limit);
    return {
      items: shown.map((change) => ({
        version: change.metadataVersion,
        at: new Date(change.atMs).toISOString(),
        by: change.by,
        operationId: change.operationId,
        changes: { ...change.changes },
      })),
      nextCursor: found.length > query.limit ? String(shown.at(-1)?.metadataVersion) : null,
      kept: this.#context.settings.historyKept,
    };
  }

  #mutate<Result>(
    caller: Caller,
    asked: { sandboxId: SandboxId; conditions: Conditions; kind: string; body: unknown },
    work: Work<Result>,
  ): Promise<Result> {
    const { sandboxId, conditions, kind, body } = asked;
    return this.#parts.mutations.run({
      caller,
      kind,
      conditions,
      request: { sandboxId, body },
      effect: (operation) =>
        this.#parts.gate.pass(sandboxId, conditions, async () => work.view(await work.effect(operation))),
      resume: (operation) => this.#resume({ caller, sandboxId, operation }, work),
    });
  }

  /** Interrupted: if the change is in the history it took effect, and only the answer is missing. */
  async #resume<Result>(
    asked: { caller: Caller; sandboxId: SandboxId; operation: Operation },
    work: Work<Result>,
  ): Promise<Result> {
    const { caller, sandboxId, operation } = asked;
    await this.#parts.records.get(caller, sandboxId);
    const limit = this.#context.settings.historyKept;
    // Entering the lane settles what is in doubt, so that the history is complete.
    const known = await this.#context.lanes.run(sandboxId, () =>
      this.#context.store.read((tables) => tables.history.list({ sandboxId, limit })),
    );
    const made = known.find((change) => change.operationId === operation.id);
    if (made === undefined) return await this.#again(work, operation);
    const record = await this.#parts.records.get(caller, sandboxId);
    if (made.metadataVersion === record.metadataVersion) return await work.view(record);
    const details = { operationId: operation.id, metadataVersion: made.metadataVersion };
    const message = 'The change took effect and was followed by others before it could be answered.';
    throw new PlatformError('operation_in_doubt', message, { details });
  }

  /** The history knows metadata only: a deadline or network that was changed has raised the version, and would now be refused for it. */
  async #again<Result>(work: Work<Result>, operation: Operation): Promise<Result> {
    try {
      return await work.view(await work.effect(operation));
    } catch (error) {
      if (!work.isBeyondHistory || !isPlatformError(error, 'version_mismatch')) throw error;
      const message = 'The change may have taken effect before it was interrupted: the version is another one since.';
      throw new PlatformError('operation_in_doubt', message, { details: { operationId: operation.id } });
    }
  }

  async #apply(
    asked: {
      caller: Caller;
      sandboxId: SandboxId;
      conditions: Conditions;
      operation: Operation;
      versioned: (record: SandboxRecord) => void;
    },
    update: Update,
  ): Promise<SandboxRecord> {
    const { caller, sandboxId, conditions, operation } = asked;
    await this.#parts.records.get(caller, sandboxId);
    return await this.#context.lanes.run(sandboxId, async (lane) => {
      const record = await this.#parts.records.get(caller, sandboxId);
      checkGeneration(record, conditions);
      asked.versioned(record);
      if (record.state.kind !== 'running' && record.state.kind !== 'paused') throw notRunning(record);
      await this.#parts.records.checkLease(record, conditions);
      if (update.expectMetadata !== undefined) checkExpected(record.metadata, update.expectMetadata);
      const merge = mergeMetadata(record.metadata, update.metadata ?? {});
      const isMetadataChanged = Object.keys(merge.changes).length > 0;
      const isDeadlineChanged = update.expiresInMs !== undefined;
      const isNetworkChanged = update.network !== undefined && !isDeepStrictEqual(update.network, record.network);
      const automatic = automaticChanges(record, update);
      const isChanged = isMetadataChanged || isDeadlineChanged || isNetworkChanged || Object.keys(automatic).length > 0;
      if (!isChanged) return record;
      const nowMs = this.#context.clock.nowMs();
      const change = {
        sandboxId,
        metadataVersion: record.metadataVersion + 1,
        atMs: nowMs,
        by: caller.keyId,
        operationId: operation.id,
        changes: merge.changes,
      };
      const events: PendingEvent[] = [
        { kind: 'sandbox.updated', data: { by: caller.keyId, ...(isMetadataChanged && { changes: merge.changes }) } },
      ];
      return await this.#parts.records.change(lane, record, {
        ...(isMetadataChanged && { metadata: merge.metadata }),
        ...(isDeadlineChanged && deadlineOf(record, update.expiresInMs ?? null, nowMs)),
        ...automatic,
        ...(isNetworkChanged && update.network && { network: update.network }),
        by: caller.keyId,
        operationId: operation.id,
        events,
        also: async (tables) => {
          if (!isMetadataChanged) return;
          await tables.history.append(change);
          const keep = this.#context.settings.historyKept;
          // There are no more changes than versions: before that many there is nothing to look for.
          if (change.metadataVersion > keep) await tables.history.trim({ sandboxId, keep });
        },
      });
    });
  }
}

/** Of what is paused, the time that it has left changes, which only the record knows. */
function deadlineOf(record: SandboxRecord, expiresInMs: number | null, nowMs: number) {
  if (record.state.kind === 'paused') return { state: { ...record.state, leftMs: expiresInMs } };
  return { expiresAtMs: expiresInMs === null ? null : nowMs + expiresInMs };
}

function automaticChanges(record: SandboxRecord, update: Update) {
  const { onExpiry, autoResume, keepCheckpoints } = update;
  return {
    ...(onExpiry !== undefined && onExpiry !== record.onExpiry && { onExpiry }),
    ...(autoResume !== undefined && autoResume !== record.autoResume && { autoResume }),
    ...(keepCheckpoints !== undefined && keepCheckpoints !== record.keepCheckpoints && { keepCheckpoints }),
  };
}

function viewOf(record: SandboxRecord): MetadataView {
  return { metadata: { ...record.metadata }, version: record.metadataVersion };
}
