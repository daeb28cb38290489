/** What a sandbox changed in a workspace: shown, published as the next version, or merged with what others published. */
import {
  type BodyOf,
  type Conditions,
  isPlatformError,
  PlatformError,
  type ResultOf,
  type routes,
  type SandboxId,
  workspaceLimits,
} from '../../protocol/index.ts';
import type { AttachmentRecord, SandboxRecord, WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import type { Mutations, Operation } from '../mutations.ts';
import type { Asked, Attachments } from './attachments.ts';
import { applyChanges, touchedPaths } from './checkout-placement.ts';
import { findPublished } from './published.ts';
import type { SandboxChanges } from './sandbox-changes.ts';
import type { CombineConflict, Contribution } from './workspace-changes.ts';
import { versionViewOf, type WorkspaceDirectory } from './workspace-directory.ts';

type CommitBody = BodyOf<typeof routes.commitAttachment>;
type Committed = ResultOf<typeof routes.commitAttachment>;
type Updated = ResultOf<typeof routes.updateAttachment>;

/** How often a head may move away under a commit. */
export const attemptsMax = 10;
/** How often an update is made anew because files that it would write have changed. */
const looksMax = 3;

interface ChangeParts {
  readonly mutations: Mutations;
  readonly directory: WorkspaceDirectory;
  readonly changes: SandboxChanges;
  readonly attachments: Attachments;
}

export class AttachmentChanges {
  readonly #context: ControlContext;
  readonly #parts: ChangeParts;

  constructor(context: ControlContext, parts: ChangeParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async diff(
    asked: Asked,
    body: BodyOf<typeof routes.diffAttachment>,
    signal?: AbortSignal,
  ): Promise<ResultOf<typeof routes.diffAttachment>> {
    const { attachment, tree, leftOut } = await this.#look(asked, signal);
    const { workspaceId, baseCommit, baseNumber } = attachment;
    const workspace = await this.#parts.directory.get(asked.caller, workspaceId);
    const order = { workspaceId, from: baseCommit, to: tree, limit: body.limit };
    const { counts, files, hasMore } = await this.#parts.directory.home(workspace, (home) => home.diff(order));
    const base = { number: baseNumber, commit: baseCommit };
    return { base, tree, leftOut: [...leftOut], counts, files: [...files], hasMore };
  }

  async patch(asked: Asked, signal?: AbortSignal): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }> {
    const { attachment, tree } = await this.#look(asked, signal);
    const { workspaceId, baseCommit } = attachment;
    const workspace = await this.#parts.directory.get(asked.caller, workspaceId);
    const order = { workspaceId, from: baseCommit, to: tree };
    return await this.#parts.directory.home(workspace, (home) => home.patch(order, signal));
  }

  commit(asked: Asked, body: CommitBody, signal?: AbortSignal): Promise<Committed> {
    const { caller, sandboxId, workspace, conditions } = asked;
    return this.#parts.mutations.run({
      caller,
      kind: 'commitAttachment',
      conditions,
      request: { sandboxId, workspace, body },
      effect: (operation) => this.#commit(asked, body, operation, signal),
      resume: async (operation) => {
        const published = await findPublished(this.#context, caller, operation);
        if (published === undefined) return await this.#commit(asked, body, operation, signal);
        await this.#parts.changes.release({ workspaceId: published.workspaceId, hold: holdOf(operation) });
        return await this.#answerOf(published, asked);
      },
    });
  }

  #commit(asked: Asked, body: CommitBody, operation: Operation, signal?: AbortSignal): Promise<Committed> {
    const { caller, sandboxId, workspace, conditions } = asked;
    const { changes, directory, attachments } = this.#parts;
    return attachments.alone(asked, async () => {
      const { workspaceId } = await directory.attachment(caller, sandboxId, workspace);
      const hold = holdOf(operation);
      changes.claim(hold);
      try {
        const contributions = await changes.collect(
          { ...requestOf(caller, sandboxId, conditions), workspaceIds: [workspaceId], hold },
          signal,
        );
        return await this.#publish(asked, { body, operation, contributions, hold }, signal);
      } finally {
        await changes.release({ workspaceId, hold }).catch((error: unknown) => {
          this.#context.logger.warn('holds of a commit are left to recovery', { workspaceId, error });
        });
      }
    });
  }

  /** Onto the head as it is; again when somebody else was faster. */
  async #publish(
    { caller, sandboxId }: Asked,
    what: {
      readonly body: CommitBody;
      readonly operation: Operation;
      readonly contributions: readonly Contribution[];
      readonly hold: string;
    },
    signal?: AbortSignal,
  ): Promise<Committed> {
    const { body, operation, contributions, hold } = what;
    const { changes } = this.#parts;
    const { store, clock, events, faults } = this.#context;
    const [contribution] = contributions as readonly [Contribution];
    const { workspaceId } = contribution.attachment;
    const leftOut = [...contribution.leftOut];
    const author = body.author ?? authorOf(caller);
    const { message, trailers } = body;
    const atMs = clock.nowMs();
    for (let attempt = 1; ; attempt++) {
      const request = { workspaceId, contributions, author, message, trailers, atMs, hold };
      const combined = await changes.combine(request, signal);
      if (combined.kind === 'nothing') return { outcome: 'nothing', version: null, counts: noChange, leftOut };
      if (combined.kind === 'conflicts') throw conflictError(combined.conflicts, combined.onNumber);
      try {
        const { version } = combined;
        const publish = { version, createdBy: caller.keyId, sandboxId, planId: null, atMs, operationId: operation.id };
        const record = await store.transact((tables) => changes.publish(tables, publish));
        events.notify();
        await faults.hit('after-version-published');
        return { outcome: 'committed', version: versionViewOf(record), counts: version.counts, leftOut };
      } catch (error) {
        if (!isPlatformError(error, 'workspace_moved') || attempt === attemptsMax) throw error;
      }
    }
  }

  async #answerOf(published: WorkspaceVersionRecord, { caller }: Asked): Promise<Committed> {
    const { workspaceId, number, commit: to } = published;
    const workspace = await this.#parts.directory.ready(caller, workspaceId);
    const { commit: from } = await this.#parts.directory.version(workspace, number - 1);
    const order = { workspaceId, from, to, limit: 1 };
    const { counts } = await this.#parts.directory.home(workspace, (home) => home.diff(order));
    return { outcome: 'committed', version: versionViewOf(published), counts, leftOut: [] };
  }

  update(asked: Asked): Promise<Updated> {
    const { caller, sandboxId, workspace, conditions } = asked;
    return this.#parts.mutations.run({
      caller,
      kind: 'updateAttachment',
      conditions,
      request: { sandboxId, workspace },
      // What an interrupted one wrote is the sandbox's own by then, and merges with itself.
      effect: () => this.#parts.attachments.change(asked, (sandbox) => this.#updateUnmoved(asked, sandbox)),
    });
  }

  /** A file that was written just before the look may seem to have changed after it; then all of it is looked at again. */
  async #updateUnmoved(asked: Asked, sandbox: SandboxRecord): Promise<Updated> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#update(asked, sandbox);
      } catch (error) {
        if (!isPlatformError(error, 'file_changed') || attempt === looksMax) throw error;
      }
    }
  }

  async #update(asked: Asked, sandbox: SandboxRecord): Promise<Updated> {
    const { caller, sandboxId, conditions } = asked;
    const { attachments, directory } = this.#parts;
    const attachment = await directory.attachment(caller, sandboxId, asked.workspace);
    const { workspaceId, baseCommit: base } = attachment;
    const workspace = await directory.ready(caller, workspaceId);
    const { headCommit, headNumber: baseNumber } = workspace;
    if (base === headCommit) return { attachment: await attachments.viewOf(attachment), files: 0 };
    const before = await this.#markOf(sandbox, attachment);
    const { tree } = await this.#look(asked);
    const merged = await directory.home(workspace, async (home) => {
      const outcome = await home.merge({ workspaceId, base, ours: tree, theirs: headCommit });
      if (outcome.kind === 'conflicts') {
        const conflicts = outcome.conflicts.map((one) => ({ ...one, sandboxId, withSandboxId: null }));
        throw conflictError(conflicts, baseNumber);
      }
      const limit = workspaceLimits.diffFiles;
      const { files, hasMore } = await home.diff({ workspaceId, from: tree, to: outcome.tree, limit });
      if (hasMore) throw tooMuch(limit);
      const order = {
        workspaceId,
        tree: outcome.tree,
        parents: [headCommit],
        atMs: 0,
        message: 'update',
        trailers: [],
      };
      const { commit } = await home.commitTree({ ...order, author: authorOf(caller) });
      return { files, commit };
    });
    refuseOddNames(merged.files);
    await this.#requireUnmoved(sandbox, attachment, { before, touched: touchedPaths(merged.files) });
    await attachments.at(sandbox, attachment, conditions, (place) => applyChanges(place, merged));
    await this.#context.faults.hit('after-checkout-updated');
    const data = { files: merged.files.length };
    const event = { kind: 'workspace.updated', by: caller, data };
    const view = await attachments.moveTo(sandbox, attachment, { baseNumber, baseCommit: headCommit }, event);
    return { attachment: view, files: merged.files.length };
  }

  /** A look at all files, to tell later what has changed since. */
  #markOf(sandbox: SandboxRecord, { path }: AttachmentRecord): Promise<string> {
    const order = { ...lookOf(sandbox), path, since: null, limit: 1 };
    return this.#context.nodes.call(sandbox.nodeId, async (node) => (await node.fileChanges(order)).cursor);
  }

  /** Commands may go on while the merge is made: what they touched of what is to be written would be lost. */
  async #requireUnmoved(
    sandbox: SandboxRecord,
    { path }: AttachmentRecord,
    look: { readonly before: string; readonly touched: ReadonlySet<string> },
  ): Promise<void> {
    const order = { ...lookOf(sandbox), path, since: look.before, limit: workspaceLimits.diffFiles };
    const { changes } = await this.#context.nodes.call(sandbox.nodeId, (node) => node.fileChanges(order));
    for (const change of changes) {
      const changed = change.kind === 'deleted' ? change.path : change.entry.path;
      const relative = changed.startsWith(`${path}/`) ? changed.slice(path.length + 1) : changed;
      if (!look.touched.has(relative)) continue;
      const message = `${changed} was changed while the update was made. Nothing was written.`;
      throw new PlatformError('file_changed', message, { details: { path: changed } });
    }
  }

  async #look({ caller, sandboxId, workspace, conditions }: Asked, signal?: AbortSignal): Promise<Contribution> {
    const { workspaceId } = await this.#parts.directory.attachment(caller, sandboxId, workspace);
    const request = { ...requestOf(caller, sandboxId, conditions), workspaceIds: [workspaceId] };
    const [contribution] = await this.#parts.changes.look(request, signal);
    return contribution as Contribution;
  }
}

const noChange = { files: 0, insertions: 0, deletions: 0 };

export function authorOf({ name, keyId }: Caller): { readonly name: string; readonly email: string } {
  const plain = name.replaceAll(/[<>\n\r\0]/g, ' ').trim();
  return { name: plain === '' ? keyId : plain.slice(0, 200), email: `${keyId}@keys.atoll.invalid` };
}

export function holdOf(operation: Pick<Operation, 'id'>): string {
  return `operation/${operation.id}`;
}

function requestOf(caller: Caller, sandboxId: SandboxId, conditions: Conditions) {
  return { teamId: caller.teamId, sandboxId, leaseToken: conditions.leaseToken ?? null, createdBy: caller.keyId };
}

function lookOf({ id, generation }: SandboxRecord) {
  return { sandboxId: id, generation, user: null, leaseToken: null };
}

function conflictError(conflicts: readonly CombineConflict[], onNumber: number): PlatformError {
  const paths = conflicts.slice(0, 3).map(({ path }) => path);
  const more = conflicts.length > paths.length ? ` and ${conflicts.length - paths.length} more` : '';
  const message = `Both sides changed ${paths.join(', ')}${more}.`;
  const details = {
    version: onNumber,
    count: conflicts.length,
    conflicts: conflicts.slice(0, workspaceLimits.conflicts),
  };
  return new PlatformError('workspace_conflict', message, { details });
}

function tooMuch(limit: number): PlatformError {
  const message = `More than ${limit} files differ: attach the workspace to a new sandbox, or commit and attach it again.`;
  return new PlatformError('limit_exceeded', message, { details: { limit } });
}

/** What carries changed files into a sandbox names them as text. */
function refuseOddNames(files: readonly { readonly path: string; readonly pathBase64: string | null }[]): void {
  const odd = files.find(({ pathBase64 }) => pathBase64 !== null);
  if (odd === undefined) return;
  throw new PlatformError('file_not_usable', `The name ${odd.path} is not UTF-8; it cannot be brought into a sandbox.`);
}
