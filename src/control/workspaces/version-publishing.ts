/**
 * How a commit that is not of a sandbox becomes a version: imported, or made here. Its objects are held before the transaction that makes it the
 * head, and under the version's own name after it.
 */
import {
  type BodyOf,
  type CommitAuthor,
  type Conditions,
  type GitObjectId,
  isPlatformError,
  type QueryOf,
  type ResultOf,
  type routes,
  type WorkspaceCommit,
  type WorkspaceId,
  type WorkspaceVersionView,
} from '../../protocol/index.ts';
import type { WorkspaceRecord, WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { holdContent } from '../keyed-content.ts';
import type { Mutations, Operation } from '../mutations.ts';
import { attemptsMax, authorOf, holdOf } from './attachment-changes.ts';
import { summaryOf } from './combine.ts';
import { findPublished } from './published.ts';
import { addVersion, authorText, type SandboxChanges, workspaceMoved } from './sandbox-changes.ts';
import { requireReady, versionViewOf, type WorkspaceDirectory } from './workspace-directory.ts';

interface PublishingParts {
  readonly mutations: Mutations;
  readonly directory: WorkspaceDirectory;
  readonly changes: SandboxChanges;
}

export interface MadeVersion {
  readonly commit: GitObjectId;
  readonly kind: WorkspaceVersionRecord['kind'];
  readonly summary: string;
  readonly author: CommitAuthor;
  readonly atMs: number;
}

type Routes = typeof routes;
type RemoteBody = Pick<BodyOf<Routes['importWorkspaceRemote']>, 'url' | 'ref' | 'credentials'>;

/** The end of a tar without entries. */
const emptyTar = new Uint8Array(1_024);

export class VersionPublishing {
  readonly #context: ControlContext;
  readonly #parts: PublishingParts;

  constructor(context: ControlContext, parts: PublishingParts) {
    this.#context = context;
    this.#parts = parts;
  }

  /** Refuses with `workspace_moved` when the head is not `onNumber`. */
  async publish(
    caller: Caller,
    what: {
      readonly workspaceId: WorkspaceId;
      readonly onNumber: number;
      readonly version: MadeVersion;
      readonly operation: Operation;
    },
  ): Promise<WorkspaceVersionView> {
    const { workspaceId, onNumber, version, operation } = what;
    const { store, events, faults } = this.#context;
    const { commit, kind, summary, author, atMs } = version;
    const workspace = await this.#parts.directory.get(caller, workspaceId);
    this.#parts.changes.claim(holdOf(operation));
    const hold = { workspaceId, name: `${holdOf(operation)}/commit/${commit}`, object: commit };
    await this.#parts.directory.home(workspace, (home) => home.hold(hold));
    await faults.hit('after-version-held');
    try {
      const record = await store.transact((tables) =>
        addVersion(tables, {
          ...{ workspaceId, onNumber, operationId: operation.id },
          version: {
            ...{ commit, kind, summary, sandboxId: null, planId: null, createdBy: caller.keyId },
            ...{ author: authorText(author), createdAtMs: atMs },
          },
        }),
      );
      events.notify();
      await faults.hit('after-version-published');
      return await this.settle(record, operation);
    } catch (error) {
      await this.#release(workspaceId, operation);
      throw error;
    }
  }

  /** What an operation held goes; what it published is held by its number. */
  async settle(published: WorkspaceVersionRecord, operation: Pick<Operation, 'id'>): Promise<WorkspaceVersionView> {
    await this.#release(published.workspaceId, operation);
    return versionViewOf(published);
  }

  /** A failure here undoes nothing: recovery finds what is left. */
  async #release(workspaceId: WorkspaceId, operation: Pick<Operation, 'id'>): Promise<void> {
    await this.#parts.changes.release({ workspaceId, hold: holdOf(operation) }).catch((error: unknown) => {
      this.#context.logger.warn('holds are left to recovery', { workspaceId, error });
    });
  }

  async importEmpty(caller: Caller, workspace: WorkspaceRecord, operation: Operation): Promise<void> {
    const { id: workspaceId } = workspace;
    const order = this.#importOrder(caller, workspaceId, { kind: 'archive', message: 'Empty workspace' });
    const made = await this.#parts.directory.home(workspace, (home) => home.importBytes(order, once(emptyTar)));
    const version = importOf(made, order.atMs);
    await this.publish(caller, { workspaceId, onNumber: 0, version, operation });
  }

  async importBytes(
    caller: Caller,
    reference: string,
    conditions: Conditions,
    query: QueryOf<Routes['importWorkspace']>,
    bytes: AsyncIterable<Uint8Array>,
    signal: AbortSignal,
  ): Promise<WorkspaceVersionView> {
    const content = await holdContent(bytes, conditions);
    const request = { reference, query, digest: content.digest };
    return await this.#importing(
      caller,
      reference,
      { kind: 'importWorkspace', conditions, request },
      async (workspace) => {
        const order = this.#importOrder(caller, workspace.id, query);
        const made = await this.#parts.directory.home(workspace, (home) =>
          home.importBytes(order, content.bytes(), signal),
        );
        return { made, expectedHead: query.expectedHead, atMs: order.atMs };
      },
    );
  }

  importRemote(
    caller: Caller,
    reference: string,
    conditions: Conditions,
    body: BodyOf<Routes['importWorkspaceRemote']>,
    signal: AbortSignal,
  ): Promise<WorkspaceVersionView> {
    const { expectedHead, credentials: _, ...named } = body;
    const request = { reference, ...named, expectedHead };
    return this.#importing(
      caller,
      reference,
      { kind: 'importWorkspaceRemote', conditions, request },
      async (workspace) => {
        const order = remoteOrder(workspace.id, body);
        const made = await this.#parts.directory.home(workspace, (home) => home.importRemote(order, signal));
        return { made, expectedHead, atMs: this.#context.clock.nowMs() };
      },
    );
  }

  async push(
    caller: Caller,
    reference: string,
    conditions: Conditions,
    body: BodyOf<Routes['pushWorkspace']>,
    signal: AbortSignal,
  ): Promise<ResultOf<Routes['pushWorkspace']>> {
    const { credentials: _, ...named } = body;
    return await this.#parts.mutations.run({
      caller,
      kind: 'pushWorkspace',
      conditions,
      request: { reference, ...named },
      // A branch that is there already is not moved again.
      effect: async () => {
        const workspace = await this.#parts.directory.ready(caller, reference);
        const { number, commit } = await this.#parts.directory.version(workspace, body.version);
        const order = { ...remoteOrder(workspace.id, body), commit };
        await this.#parts.directory.home(workspace, (home) => home.pushRemote(order, signal));
        return { number, commit };
      },
    });
  }

  async export(
    caller: Caller,
    reference: string,
    query: QueryOf<Routes['exportWorkspace']>,
    signal: AbortSignal,
  ): Promise<{ readonly version: WorkspaceVersionRecord; readonly bytes: AsyncIterable<Uint8Array> }> {
    const { directory } = this.#parts;
    const workspace = await directory.ready(caller, reference);
    const version = await directory.version(workspace, query.version);
    const since: string[] = [];
    for (const number of query.since ?? []) since.push((await directory.version(workspace, number)).commit);
    const order = { workspaceId: workspace.id, commit: version.commit, kind: query.kind, since };
    const { bytes } = await directory.home(workspace, (home) => home.exportBytes(order, signal));
    return { version, bytes };
  }

  #importing(
    caller: Caller,
    reference: string,
    asked: { readonly kind: string; readonly conditions: Conditions; readonly request: unknown },
    bring: (
      workspace: WorkspaceRecord,
    ) => Promise<{ readonly made: WorkspaceCommit; readonly expectedHead: number | undefined; readonly atMs: number }>,
  ): Promise<WorkspaceVersionView> {
    const run = async (operation: Operation) => {
      const workspace = await this.#parts.directory.get(caller, reference);
      if (workspace.state === 'deleting') requireReady(workspace);
      const { id: workspaceId } = workspace;
      // Its home may never have heard of one that was begun before a crash.
      if (workspace.headNumber === 0) {
        await this.#parts.directory.home(workspace, (home) => home.create({ workspaceId }));
      }
      const { made, expectedHead, atMs } = await bring(workspace);
      return await this.#onto(caller, { workspaceId, version: importOf(made, atMs), operation, expectedHead });
    };
    return this.#parts.mutations.run({
      caller,
      ...asked,
      effect: run,
      resume: async (operation) => {
        const published = await findPublished(this.#context, caller, operation);
        return published === undefined ? await run(operation) : await this.settle(published, operation);
      },
    });
  }

  /** What comes from outside stands on nothing here: it is put on whatever the head is, unless the caller said which. */
  async #onto(
    caller: Caller,
    what: {
      readonly workspaceId: WorkspaceId;
      readonly version: MadeVersion;
      readonly operation: Operation;
      readonly expectedHead: number | undefined;
    },
  ): Promise<WorkspaceVersionView> {
    const { expectedHead, ...publish } = what;
    for (let attempt = 1; ; attempt++) {
      const { headNumber, name } = await this.#parts.directory.get(caller, what.workspaceId);
      if (expectedHead !== undefined && expectedHead !== headNumber) {
        throw workspaceMoved(name, headNumber, expectedHead);
      }
      try {
        return await this.publish(caller, { ...publish, onNumber: headNumber });
      } catch (error) {
        if (!isPlatformError(error, 'workspace_moved') || attempt === attemptsMax) throw error;
      }
    }
  }

  #importOrder(
    caller: Caller,
    workspaceId: WorkspaceId,
    query: Pick<QueryOf<Routes['importWorkspace']>, 'kind' | 'ref' | 'message'>,
  ) {
    const source =
      query.kind === 'bundle' ? { kind: 'bundle' as const, ref: query.ref ?? null } : { kind: 'archive' as const };
    const message = query.message ?? 'Import';
    return { workspaceId, source, message, author: authorOf(caller), atMs: this.#context.clock.nowMs() };
  }
}

function importOf({ commit, message, author }: WorkspaceCommit, atMs: number): MadeVersion {
  return { commit, kind: 'import', summary: summaryOf(message), author, atMs };
}

function remoteOrder(workspaceId: WorkspaceId, { url, ref, credentials }: RemoteBody) {
  return { workspaceId, url, ref: ref ?? null, credentials: credentials ?? null };
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  yield bytes;
}
