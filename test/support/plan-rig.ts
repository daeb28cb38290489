/** Control with a store and a node as in ControlRig, and workspaces in memory: for everything about plans that does not need git. */
import {
  type BodyInputOf,
  type Conditions,
  isPlatformError,
  type PlanCheckpointId,
  type PlanCommitView,
  routes,
  type SandboxId,
  type WorkspaceId,
} from '../../src/protocol/index.ts';
import { ControlRig, type RigOptions } from './control-rig.ts';
import { PlanModel } from './plan-model.ts';

const never = new AbortController().signal;

export class PlanRig {
  readonly rig: ControlRig;
  readonly model: PlanModel;

  private constructor(rig: ControlRig, model: PlanModel) {
    this.rig = rig;
    this.model = model;
  }

  static async open(options: RigOptions = {}): Promise<PlanRig> {
    let model: PlanModel | undefined;
    const rig = await ControlRig.open({
      ...options,
      planWork: ({ store, node }) => {
        model ??= new PlanModel(store, node);
        return model;
      },
    });
    return new PlanRig(rig, model!);
  }

  close(): Promise<void> {
    return this.rig.close();
  }

  get plans() {
    return this.rig.control.plans;
  }

  workspace(name: string, tree: Record<string, string> = { file: 'base' }): Promise<WorkspaceId> {
    return this.model.createWorkspace(this.rig.caller as never, name, tree);
  }

  /** A running sandbox that has these workspaces. */
  async sandbox(...workspaces: WorkspaceId[]): Promise<SandboxId> {
    const { id } = await this.rig.create();
    for (const workspace of workspaces) await this.model.attach(id, workspace);
    return id;
  }

  write(sandboxId: SandboxId, workspaceId: WorkspaceId, files: Record<string, string | null>): void {
    const tree = this.model.filesOf(sandboxId, workspaceId);
    for (const [path, text] of Object.entries(files)) {
      if (text === null) tree.delete(path);
      else tree.set(path, text);
    }
  }

  /** Two workspaces, a sandbox on each with a change of its own, and a plan of both. */
  async planOfTwo() {
    const [one, two] = [await this.workspace('one'), await this.workspace('two')];
    const boxes = [await this.sandbox(one), await this.sandbox(two)];
    this.write(boxes[0]!, one, { mine: '1' });
    this.write(boxes[1]!, two, { mine: '2' });
    const heads = async () => {
      const found = [await this.model.workspace(one), await this.model.workspace(two)];
      return found.map((workspace) => workspace!.headNumber);
    };
    return { one, two, boxes, plan: (await this.create('p', boxes)).id, heads };
  }

  create(name: string, members: readonly SandboxId[] = [], conditions: Conditions = {}) {
    return this.plans.create(this.rig.caller, conditions, { name, members: [...members] });
  }

  get(plan: string) {
    return this.plans.views.get(this.rig.caller, plan);
  }

  add(plan: string, sandboxId: SandboxId, conditions: Conditions = {}) {
    return this.plans.add(this.rig.caller, plan, conditions, sandboxId);
  }

  remove(plan: string, sandboxId: SandboxId, conditions: Conditions = {}) {
    return this.plans.remove(this.rig.caller, plan, conditions, sandboxId);
  }

  commit(
    plan: string,
    body: BodyInputOf<typeof routes.commitPlan> = {},
    conditions: Conditions = {},
    signal: AbortSignal = never,
  ): Promise<PlanCommitView> {
    const parsed = routes.commitPlan.body.parse({ waitMs: 0, ...body });
    return this.plans.commits.commit(this.rig.caller, plan, conditions, parsed, signal);
  }

  revert(plan: string, body: BodyInputOf<typeof routes.revertPlan> = {}): Promise<PlanCommitView> {
    const parsed = routes.revertPlan.body.parse({ waitMs: 0, ...body });
    return this.plans.commits.revert(this.rig.caller, plan, {}, parsed, never);
  }

  rollBack(plan: string, body: BodyInputOf<typeof routes.rollBackPlan> = {}, conditions: Conditions = {}) {
    const parsed = routes.rollBackPlan.body.parse({ waitMs: 0, ...body });
    return this.plans.rollbacks.rollBack(this.rig.caller, plan, conditions, parsed);
  }

  checkpoint(plan: string, body: BodyInputOf<typeof routes.createPlanCheckpoint> = {}, conditions: Conditions = {}) {
    const parsed = routes.createPlanCheckpoint.body.parse({ waitMs: 0, ...body });
    return this.plans.checkpoints.create(this.rig.caller, plan, conditions, parsed);
  }

  restore(plan: string, checkpoint: PlanCheckpointId, conditions: Conditions = {}) {
    return this.plans.restores.restore(this.rig.caller, plan, conditions, { checkpoint, waitMs: 0 });
  }

  status(plan: string) {
    return this.plans.views.status(this.rig.caller, plan, never);
  }

  delete(plan: string, options = { discard: false }, conditions: Conditions = {}) {
    return this.plans.delete(this.rig.caller, plan, conditions, options);
  }

  recover() {
    return this.plans.recovery.ask(this.rig.caller);
  }

  /** The server dies there, over this, and another comes. */
  async dieAt(point: string, work: () => Promise<unknown>): Promise<void> {
    const gate = this.rig.faults.hold(point);
    work().catch(() => {});
    await gate.reached;
    await this.rig.crash();
    gate.open();
    await this.rig.restart();
  }

  /** Moves the clock until the work is over: what waits for leases, or tries again, does so by it. */
  async byTheClock<Result>(work: Promise<Result>): Promise<Result> {
    let isOver = false;
    const end = () => {
      isOver = true;
    };
    work.then(end, end);
    while (!isOver) {
      await this.rig.quiet();
      this.rig.clock.step(1_000);
    }
    return await work;
  }

  /** Names that hold something anywhere. */
  get holds(): string[] {
    return [...this.model.holds.values()].flatMap((names) => [...names]);
  }
}

/** How it ended: `done`, or the code of the refusal. */
export const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'done',
    (error: unknown) => (isPlatformError(error) ? error.code : String(error)),
  );
