/** Workspaces as callers see them: made, looked at, deleted, their versions compared and put back. */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  newId,
  PlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type WorkspaceId,
  type WorkspaceVersionView,
  type WorkspaceView,
  workspaceLimits,
} from '../../protocol/index.ts';
import type { WorkspaceRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { parseCursor, writeCursor } from '../cursors.ts';
import type { Mutations, Operation } from '../mutations.ts';
import { promisesNoChange } from '../sandbox-records.ts';
import type { AttachCache } from './attach-cache.ts';
import { attemptsMax, authorOf } from './attachment-changes.ts';
import { summaryOf } from './combine.ts';
import { findPublished } from './published.ts';
import type { VersionPublishing } from './version-publishing.ts';
import {
  changeWorkspace,
  tellWorkspace,
  versionViewOf,
  type WorkspaceDirectory,
  workspaceViewOf,
} from './workspace-directory.ts';

interface WorkspacesParts {
  readonly mutations: Mutations;
  readonly directory: WorkspaceDirectory;
  readonly publishing: VersionPublishing;
  readonly cache: AttachCache;
}

type Routes = typeof routes;
type Bytes = { readonly bytes: AsyncIterable<Uint8Array> };

export class Workspaces {
  readonly #context: ControlContext;
  readonly #parts: WorkspacesParts;

  constructor(context: ControlContext, parts: WorkspacesParts) {
    this.#context = context;
    this.#parts = parts;
  }

  create(caller: Caller, conditions: Conditions, body: BodyOf<Routes['createWorkspace']>): Promise<WorkspaceView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'createWorkspace',
      conditions,
      request: body,
      subject: () => newId('workspace', this.#context.random),
      effect: async (operation) => {
        const record = await this.#record(caller, body.name, operation.subjectId as WorkspaceId);
        return await this.#make(caller, record, body, operation);
      },
      resume: async (operation) => {
        const id = operation.subjectId as WorkspaceId;
        const found = await this.#context.store.read((tables) => tables.workspaces.find(id));
        const record = found ?? (await this.#record(caller, body.name, id));
        return await this.#make(caller, record, body, operation);
      },
    });
  }

  async #record(caller: Caller, name: string, id: WorkspaceId): Promise<WorkspaceRecord> {
    const { store, clock, nodes, faults } = this.#context;
    const nowMs = clock.nowMs();
    const record: WorkspaceRecord = {
      ...{ id, teamId: caller.teamId, nodeId: nodes.choose(), name, state: 'creating' },
      ...{ headNumber: 0, headCommit: null, version: 1, createdAtMs: nowMs, createdBy: caller.keyId },
      updatedAtMs: nowMs,
    };
    await store.transact(async (tables) => {
      if ((await tables.workspaces.count(caller.teamId)) >= workspaceLimits.workspaces) {
        const message = `A team has at most ${workspaceLimits.workspaces} workspaces.`;
        throw new PlatformError('limit_exceeded', message, { details: { limit: workspaceLimits.workspaces } });
      }
      await tables.workspaces.insert(record);
      await tellWorkspace(tables, record, { kind: 'workspace.created', atMs: nowMs, data: { by: caller.keyId } });
    });
    this.#context.events.notify();
    await faults.hit('after-store-workspace');
    return record;
  }

  async #make(
    caller: Caller,
    record: WorkspaceRecord,
    body: BodyOf<Routes['createWorkspace']>,
    operation: Operation,
  ): Promise<WorkspaceView> {
    const { id: workspaceId } = record;
    try {
      await this.#parts.directory.home(record, (home) => home.create({ workspaceId }));
      await this.#context.faults.hit('after-workspace-on-node');
      if (body.content === 'empty' && record.headNumber === 0) {
        await this.#parts.publishing.importEmpty(caller, record, operation);
      }
    } catch (error) {
      // Nothing of it is anywhere: its name is free again.
      if (promisesNoChange(error) && error.retry !== 'backoff') await this.#forget(workspaceId);
      throw error;
    }
    return workspaceViewOf(await this.#parts.directory.get(caller, workspaceId));
  }

  async #forget(workspaceId: WorkspaceId): Promise<void> {
    const { store, clock, events } = this.#context;
    await store.transact(async (tables) => {
      const current = await tables.workspaces.find(workspaceId);
      if (current?.state !== 'creating') return;
      await tables.workspaces.remove(workspaceId);
      await tellWorkspace(tables, current, { kind: 'workspace.deleted', atMs: clock.nowMs() });
    });
    events.notify();
  }

  async get(caller: Caller, reference: string): Promise<ResultOf<Routes['getWorkspace']>> {
    const record = await this.#parts.directory.get(caller, reference);
    const attachments = await this.#context.store.read((tables) => tables.workspaces.attachmentsTo(record.id));
    return { ...workspaceViewOf(record), attachments: await this.#parts.directory.views(attachments) };
  }

  async list(caller: Caller, query: QueryOf<Routes['listWorkspaces']>): Promise<ResultOf<Routes['listWorkspaces']>> {
    const { cursor, limit } = query;
    const after = cursor === undefined ? undefined : parseCursor('workspace', cursor);
    const page = { limit: limit + 1, ...(after && { after }) };
    const { teamId } = caller;
    const found = await this.#context.store.read((tables) => tables.workspaces.list({ teamId }, page));
    const shown = found.slice(0, limit);
    const last = shown.at(-1);
    const nextCursor = found.length > limit && last !== undefined ? writeCursor(last) : null;
    return { items: shown.map(workspaceViewOf), nextCursor };
  }

  async delete(caller: Caller, reference: string, conditions: Conditions): Promise<void> {
    const begin = async () => {
      const { id } = await this.#parts.directory.get(caller, reference);
      await this.#beginDelete(caller, id);
      await this.#context.faults.hit('after-store-workspace-deleting');
      await this.finishDelete(id);
    };
    await this.#parts.mutations.run({
      caller,
      kind: 'deleteWorkspace',
      conditions,
      request: { reference },
      effect: begin,
      // What was interrupted may be finished by now, and then there is nothing left to find.
      resume: () =>
        begin().catch((error: unknown) => {
          if (!isPlatformError(error, 'workspace_not_found')) throw error;
        }),
      keep: () => null,
      restore: () => undefined,
    });
  }

  async #beginDelete(caller: Caller, id: WorkspaceId): Promise<void> {
    const { store, clock } = this.#context;
    await store.transact(async (tables) => {
      const workspace = await tables.workspaces.find(id);
      if (workspace === undefined || workspace.state === 'deleting') return;
      const attachments = await tables.workspaces.attachmentsTo(id);
      if (attachments.length > 0) throw inUse(workspace, attachments);
      const updatedAtMs = clock.nowMs();
      await changeWorkspace(tables, workspace, { state: 'deleting', updatedAtMs });
      const data = { by: caller.keyId };
      await tellWorkspace(tables, workspace, { kind: 'workspace.deleting', atMs: updatedAtMs, data });
    });
    this.#context.events.notify();
  }

  /** Also of one that a crash left. What is recorded as going away goes, sooner or later. */
  async finishDelete(id: WorkspaceId): Promise<void> {
    const { store, clock, events, faults } = this.#context;
    const workspace = await store.read((tables) => tables.workspaces.find(id));
    if (workspace === undefined) return;
    await this.#parts.cache.forgetWorkspace(id);
    await this.#parts.directory.home(workspace, (home) => home.remove({ workspaceId: id }));
    await faults.hit('after-workspace-removed-on-node');
    await store.transact(async (tables) => {
      if ((await tables.workspaces.find(id)) === undefined) return;
      await tables.workspaces.remove(id);
      await tellWorkspace(tables, workspace, { kind: 'workspace.deleted', atMs: clock.nowMs() });
    });
    events.notify();
  }

  async versions(
    caller: Caller,
    reference: string,
    query: QueryOf<Routes['listWorkspaceVersions']>,
  ): Promise<ResultOf<Routes['listWorkspaceVersions']>> {
    const { id } = await this.#parts.directory.get(caller, reference);
    const { before, limit } = query;
    const page = { limit: limit + 1, ...(before !== undefined && { before }) };
    const found = await this.#context.store.read((tables) => tables.workspaces.versions(id, page));
    const items = found.slice(0, limit).map(versionViewOf);
    return { items, nextBefore: found.length > limit ? (items.at(-1)?.number ?? null) : null };
  }

  async version(caller: Caller, reference: string, number: number): Promise<ResultOf<Routes['getWorkspaceVersion']>> {
    const { directory } = this.#parts;
    const workspace = await directory.ready(caller, reference);
    const record = await directory.version(workspace, number);
    const order = { workspaceId: workspace.id, commit: record.commit };
    const { message, tree, parents } = await directory.home(workspace, (home) => home.getCommit(order));
    return { ...versionViewOf(record), message, tree, parents: [...parents] };
  }

  async diff(
    caller: Caller,
    reference: string,
    query: QueryOf<Routes['diffWorkspace']>,
  ): Promise<ResultOf<Routes['diffWorkspace']>> {
    const { workspace, order } = await this.#between(caller, reference, query);
    const { limit } = query;
    const found = await this.#parts.directory.home(workspace, (home) => home.diff({ ...order, limit }));
    return { counts: found.counts, files: [...found.files], hasMore: found.hasMore };
  }

  async patch(
    caller: Caller,
    reference: string,
    query: QueryOf<Routes['patchWorkspace']>,
    signal: AbortSignal,
  ): Promise<Bytes> {
    const { workspace, order } = await this.#between(caller, reference, query);
    return await this.#parts.directory.home(workspace, (home) => home.patch(order, signal));
  }

  async #between(caller: Caller, reference: string, query: QueryOf<Routes['patchWorkspace']>) {
    const { directory } = this.#parts;
    const workspace = await directory.ready(caller, reference);
    const from = await directory.version(workspace, query.from);
    const to = await directory.version(workspace, query.to);
    return { workspace, order: { workspaceId: workspace.id, from: from.commit, to: to.commit } };
  }

  async blob(caller: Caller, reference: string, blob: string, signal: AbortSignal): Promise<Bytes> {
    const workspace = await this.#parts.directory.ready(caller, reference);
    const order = { workspaceId: workspace.id, blob };
    return await this.#parts.directory.home(workspace, (home) => home.readBlob(order, signal));
  }

  revert(
    caller: Caller,
    reference: string,
    conditions: Conditions,
    body: BodyOf<Routes['revertWorkspace']>,
  ): Promise<WorkspaceVersionView> {
    return this.#parts.mutations.run({
      caller,
      kind: 'revertWorkspace',
      conditions,
      request: { reference, body },
      effect: (operation) => this.#revert(caller, reference, body, operation),
      resume: async (operation) => {
        const published = await findPublished(this.#context, caller, operation);
        if (published === undefined) return await this.#revert(caller, reference, body, operation);
        return await this.#parts.publishing.settle(published, operation);
      },
    });
  }

  /** On the head as it is; again when it moves, unless the caller said which one it means. */
  async #revert(
    caller: Caller,
    reference: string,
    body: BodyOf<Routes['revertWorkspace']>,
    operation: Operation,
  ): Promise<WorkspaceVersionView> {
    const { directory, publishing } = this.#parts;
    const author = body.author ?? authorOf(caller);
    const message = body.message ?? `Revert to version ${body.version}`;
    const atMs = this.#context.clock.nowMs();
    for (let attempt = 1; ; attempt++) {
      const workspace = await directory.ready(caller, reference);
      const earlier = await directory.version(workspace, body.version);
      const { id: workspaceId, headCommit, headNumber } = workspace;
      const made = await directory.home(workspace, async (home) => {
        const { tree } = await home.getCommit({ workspaceId, commit: earlier.commit });
        const trailers = [{ name: 'Atoll-Reverts-To', value: String(body.version) }];
        return await home.commitTree({ workspaceId, tree, parents: [headCommit], author, atMs, message, trailers });
      });
      try {
        const version = { commit: made.commit, kind: 'revert' as const, summary: summaryOf(message), author, atMs };
        const onNumber = body.expectedHead ?? headNumber;
        return await publishing.publish(caller, { workspaceId, onNumber, version, operation });
      } catch (error) {
        const isFinal = body.expectedHead !== undefined || attempt === attemptsMax;
        if (!isPlatformError(error, 'workspace_moved') || isFinal) throw error;
      }
    }
  }
}

function inUse(
  { id, name }: WorkspaceRecord,
  attachments: readonly { readonly sandboxId: string; readonly path: string }[],
): PlatformError {
  const sandboxes = attachments.slice(0, 100).map(({ sandboxId, path }) => ({ sandboxId, path }));
  const message = `${attachments.length} sandboxes have the workspace "${name}". Detach it there, or delete them.`;
  return new PlatformError('workspace_in_use', message, { details: { workspaceId: id, sandboxes } });
}
