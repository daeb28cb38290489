/**
 * A process that does one thing to workspaces, for tests that kill it: what it is to do as JSON in the first argument, its answer as a line of JSON. A
 * fault point that crashes ends it before that.
 */
import { parseFaults } from '../../src/base/index.ts';
import type { SandboxId, WorkspaceId } from '../../src/protocol/index.ts';
import { openLocalRig, WorkspaceUser } from './workspace-rig.ts';

export interface WorkerScene {
  readonly directory: string;
  readonly workspaceId: WorkspaceId;
  readonly sandboxId: SandboxId;
  /** A commit that is there. */
  readonly base: string;
  /** Two changes of it that fit together. */
  readonly ours: string;
  readonly theirs: string;
}

export const workerActions = {
  create: (user, rig) => rig.workspaces.create(user),
  remove: (user, rig) => rig.workspaces.remove(user),
  import: (user) => user.importFiles({ new: 'imported\n', deep: 'x' }),
  collect: async (user, rig, scene) => await user.collect(await rig.newCheckout(), scene.base),
  merge: (user, _, scene) => user.merge(scene.base, scene.ours, scene.theirs),
  commit: async (user, rig, scene) => {
    const { tree } = await rig.workspaces.getCommit({ ...user, commit: scene.ours });
    return await user.commit(tree, [scene.base, scene.theirs], { message: 'of the worker' });
  },
  hold: (user, rig, scene) => rig.workspaces.hold({ ...user, name: 'of/the/worker', object: scene.ours }),
  tidy: (user, rig) => rig.workspaces.tidy({ ...user, olderThanMs: 3_600_000 }),
} satisfies Readonly<
  Record<
    string,
    (user: WorkspaceUser, rig: Awaited<ReturnType<typeof openLocalRig>>, scene: WorkerScene) => Promise<unknown>
  >
>;

export type WorkerAction = keyof typeof workerActions;

if (process.argv[1] === import.meta.filename) {
  const { scene, action, faults } = JSON.parse(process.argv[2]!) as {
    scene: WorkerScene;
    action: WorkerAction;
    faults: string;
  };
  const { directory, sandboxId } = scene;
  const rig = await openLocalRig({ directory, sandboxId, faults: parseFaults(faults) });
  const answer = await workerActions[action](new WorkspaceUser(rig.workspaces, scene.workspaceId), rig, scene);
  process.stdout.write(`${JSON.stringify({ answer: answer ?? null })}\n`);
}
