/** Moves the head of a workspace as somebody else's publishing would, with a commit that is there: what no plan and no lease keeps out. */
import type { WorkspaceId } from '../../src/protocol/index.ts';
import type { Store } from '../../src/store/index.ts';

export async function moveHead(store: Store, workspaceId: WorkspaceId): Promise<void> {
  await store.transact(async ({ workspaces }) => {
    const record = (await workspaces.find(workspaceId))!;
    const last = (await workspaces.findVersion({ workspaceId, number: record.headNumber }))!;
    const headNumber = record.headNumber + 1;
    await workspaces.insertVersion({ ...last, number: headNumber });
    await workspaces.update({ ...record, headNumber, version: record.version + 1 });
  });
}
