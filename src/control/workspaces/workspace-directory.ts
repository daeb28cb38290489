/** Finding workspaces, versions and attachments for a caller, and how each is shown. What is another team's is not there. */
import {
  type AttachmentView,
  type GitObjectId,
  isId,
  type NodeWorkspaces,
  PlatformError,
  type SandboxId,
  type WorkspaceId,
  type WorkspaceVersionView,
  type WorkspaceView,
} from '../../protocol/index.ts';
import type { AttachmentRecord, Readers, Tables, WorkspaceRecord, WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';

type Team = Pick<Caller, 'teamId'>;

export class WorkspaceDirectory {
  readonly #context: ControlContext;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** By id or name. */
  get(caller: Team, reference: string): Promise<WorkspaceRecord> {
    return this.#context.store.read((tables) => getWorkspace(tables, caller, reference));
  }

  /** One that has a version and stays. */
  async ready(caller: Team, reference: string): Promise<ReadyWorkspace> {
    return requireReady(await this.get(caller, reference));
  }

  /** Absent: the newest. */
  async version(workspace: ReadyWorkspace, number: number | undefined): Promise<WorkspaceVersionRecord> {
    const key = { workspaceId: workspace.id, number: number ?? workspace.headNumber };
    const found = await this.#context.store.read((tables) => tables.workspaces.findVersion(key));
    if (found === undefined) throw noVersion(workspace, key.number);
    return found;
  }

  async attachment(caller: Team, sandboxId: SandboxId, reference: string): Promise<AttachmentRecord> {
    return await this.#context.store.read(async (tables) => {
      const workspace = await getWorkspace(tables, caller, reference);
      const found = (await tables.workspaces.attachmentsOf(sandboxId)).find((one) => one.workspaceId === workspace.id);
      if (found === undefined) throw notAttached(workspace.name, sandboxId);
      return found;
    });
  }

  async views(attachments: readonly AttachmentRecord[]): Promise<AttachmentView[]> {
    return await this.#context.store.read(async (tables) => {
      const views: AttachmentView[] = [];
      for (const attachment of attachments) {
        const workspace = await tables.workspaces.find(attachment.workspaceId);
        if (workspace !== undefined) views.push(attachmentViewOf(attachment, workspace));
      }
      return views;
    });
  }

  /** Calls the home of a workspace. */
  home<Result>(
    workspace: Pick<WorkspaceRecord, 'nodeId'>,
    work: (home: NodeWorkspaces) => Promise<Result>,
  ): Promise<Result> {
    return this.#context.nodes.call(workspace.nodeId, (node) => work(node.workspaces));
  }
}

/** It has a head. */
export type ReadyWorkspace = WorkspaceRecord & { readonly state: 'ready'; readonly headCommit: GitObjectId };

export function requireReady(workspace: WorkspaceRecord): ReadyWorkspace {
  const { state, headCommit, name, id } = workspace;
  if (state === 'ready' && headCommit !== null) return { ...workspace, state, headCommit };
  const why = state === 'creating' ? 'has no version yet' : 'is being deleted';
  throw new PlatformError('workspace_wrong_state', `The workspace "${name}" ${why}.`, {
    details: { workspaceId: id, state },
  });
}

async function getWorkspace(tables: Readers, { teamId }: Team, reference: string): Promise<WorkspaceRecord> {
  // An id could be the name of another workspace: the id counts.
  const byId = isId('workspace', reference) ? await tables.workspaces.find(reference) : undefined;
  const found = byId?.teamId === teamId ? byId : await tables.workspaces.findByName({ teamId, name: reference });
  if (found !== undefined) return found;
  throw new PlatformError('workspace_not_found', `There is no workspace "${reference}" in this team.`, {
    details: { workspace: reference },
  });
}

/** A change of the record in a transaction; a bug if somebody else has changed it since it was read there. */
export async function changeWorkspace(
  tables: Tables,
  workspace: WorkspaceRecord,
  change: Partial<WorkspaceRecord> & { readonly updatedAtMs: number },
): Promise<WorkspaceRecord> {
  const next = { ...workspace, ...change, version: workspace.version + 1 };
  if (!(await tables.workspaces.update(next))) throw new Error(`The record of ${workspace.id} was changed meanwhile.`);
  return next;
}

export async function tellWorkspace(
  tables: Tables,
  workspace: Pick<WorkspaceRecord, 'id' | 'teamId' | 'name'>,
  event: {
    readonly kind: string;
    readonly atMs: number;
    readonly sandboxId?: SandboxId | null;
    readonly data?: Readonly<Record<string, unknown>>;
  },
): Promise<void> {
  await tables.events.append({
    teamId: workspace.teamId,
    sandboxId: event.sandboxId ?? null,
    kind: event.kind,
    atMs: event.atMs,
    data: { workspaceId: workspace.id, workspace: workspace.name, ...event.data },
  });
}

function noVersion({ id, name }: WorkspaceRecord, number: number): PlatformError {
  return new PlatformError('workspace_not_found', `The workspace "${name}" has no version ${number}.`, {
    details: { workspaceId: id, version: number },
  });
}

export function notAttached(workspace: WorkspaceId | string, sandboxId: SandboxId): PlatformError {
  return new PlatformError('workspace_not_found', `Sandbox ${sandboxId} does not have the workspace "${workspace}".`, {
    details: { workspace, sandboxId },
  });
}

export function workspaceViewOf(record: WorkspaceRecord): WorkspaceView {
  const { id, name, state, nodeId, version, createdBy, headNumber, headCommit } = record;
  return {
    ...{ id, name, state, nodeId, version, createdBy },
    head: headCommit === null ? null : { number: headNumber, commit: headCommit },
    createdAt: new Date(record.createdAtMs).toISOString(),
    updatedAt: new Date(record.updatedAtMs).toISOString(),
  };
}

export function versionViewOf(record: WorkspaceVersionRecord): WorkspaceVersionView {
  const { createdAtMs, ...rest } = record;
  return { ...rest, createdAt: new Date(createdAtMs).toISOString() };
}

export function attachmentViewOf(record: AttachmentRecord, workspace: WorkspaceRecord): AttachmentView {
  const { sandboxId, workspaceId, path, attachedBy, baseNumber, baseCommit } = record;
  return {
    ...{ sandboxId, workspaceId, path, attachedBy },
    workspace: workspace.name,
    base: { number: baseNumber, commit: baseCommit },
    isCurrent: baseCommit === workspace.headCommit,
    attachedAt: new Date(record.attachedAtMs).toISOString(),
  };
}
