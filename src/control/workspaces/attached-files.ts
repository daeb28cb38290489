/** Attachments that come with files: a sandbox that is made from a checkpoint, or put back to one, has what the checkpoint had. */
import type { KeyId } from '../../protocol/index.ts';
import type { CheckpointRecord, SandboxRecord, Tables } from '../../store/index.ts';

/** Those whose workspace is still there take the place of what the sandbox had. */
export async function takeAttachments(
  tables: Tables,
  sandbox: Pick<SandboxRecord, 'id' | 'teamId' | 'updatedAtMs'>,
  from: Pick<CheckpointRecord, 'attachments'>,
  by: KeyId,
): Promise<void> {
  const { id: sandboxId, teamId } = sandbox;
  await tables.workspaces.removeAttachments({ sandboxId });
  for (const kept of from.attachments) {
    const workspace = await tables.workspaces.find(kept.workspaceId);
    if (workspace?.state !== 'ready' || workspace.teamId !== teamId) continue;
    await tables.workspaces.putAttachment({
      ...{ sandboxId, teamId, attachedAtMs: sandbox.updatedAtMs, attachedBy: by },
      ...kept,
    });
  }
}

/** Events for what a sandbox was made with, in the transaction that says that it runs. */
export async function tellAttached(
  tables: Tables,
  sandbox: Pick<SandboxRecord, 'id' | 'teamId' | 'updatedAtMs'>,
): Promise<void> {
  for (const { workspaceId, path, baseNumber, attachedBy } of await tables.workspaces.attachmentsOf(sandbox.id)) {
    const data = { workspaceId, path, version: baseNumber, by: attachedBy };
    const { id: sandboxId, teamId, updatedAtMs: atMs } = sandbox;
    await tables.events.append({ teamId, sandboxId, kind: 'workspace.attached', atMs, data });
  }
}
