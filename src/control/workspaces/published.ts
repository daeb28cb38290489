/** Whether an operation that was interrupted has published a version: its event says so. */
import type { WorkspaceId } from '../../protocol/index.ts';
import type { WorkspaceVersionRecord } from '../../store/index.ts';
import type { Caller } from '../caller.ts';
import type { ControlContext } from '../context.ts';
import type { Operation } from '../mutations.ts';

const pageSize = 1_000;

/** As far back as events are kept, which is longer than keys are. */
export async function findPublished(
  { store }: ControlContext,
  { teamId }: Pick<Caller, 'teamId'>,
  operation: Pick<Operation, 'id'>,
): Promise<WorkspaceVersionRecord | undefined> {
  for (let after = 0; ; ) {
    const page = await store.read((tables) => tables.events.list({ teamId, after, limit: pageSize }));
    const event = page.find(({ kind, data }) => kind === 'workspace.version' && data['operationId'] === operation.id);
    if (event !== undefined) {
      const key = { workspaceId: event.data['workspaceId'] as WorkspaceId, number: event.data['number'] as number };
      return await store.read((tables) => tables.workspaces.findVersion(key));
    }
    if (page.length < pageSize) return undefined;
    after = page.at(-1)?.sequence ?? after;
  }
}
