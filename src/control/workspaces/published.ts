/** Whether an operation that was interrupted has published a version: its event says so. */
import type { WorkspaceId } from '../../protocol/index.ts';
import type { WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import { findEvent } from '../find-event.ts';
import type { Operation } from '../mutations.ts';

export async function findPublished(
  context: ControlContext,
  caller: Pick<Caller, 'teamId'>,
  operation: Pick<Operation, 'id'>,
): Promise<WorkspaceVersionRecord | undefined> {
  const event = await findEvent(context, caller, ({ kind, data }) => {
    return kind === 'workspace.version' && data['operationId'] === operation.id;
  });
  if (event === undefined) return undefined;
  const key = { workspaceId: event.data['workspaceId'] as WorkspaceId, number: event.data['number'] as number };
  return await context.store.read((tables) => tables.workspaces.findVersion(key));
}
