/**
 * Tidies up after commits: the lease, then the objects that were held for them, at once or when they were kept long enough. Only names of that
 * commit are released. Every step can be repeated; what fails is tried again by recovery and never makes a commit fail.
 */
import { isPlatformError, type PlanCommitId } from '../../protocol/index.ts';
import type { PlanCommitRecord } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import type { PlanLeases } from './plan-leases.ts';
import type { PlanWork } from './plan-work.ts';

const pageSize = 1_000;

export class PlanTidying {
  readonly #context: ControlContext;
  readonly #leases: PlanLeases;
  readonly #work: PlanWork;

  constructor(context: ControlContext, parts: { leases: PlanLeases; work: PlanWork }) {
    this.#context = context;
    this.#leases = parts.leases;
    this.#work = parts.work;
  }

  /** All that can be tidied now; how many were. */
  async run(): Promise<PlanCommitRecord[]> {
    const found = await this.#context.store.read((tables) => tables.plans.unfinishedCommits(pageSize));
    const tidied: PlanCommitRecord[] = [];
    for (const commit of found) if (await this.tidyCommit(commit.id)) tidied.push(commit);
    return tidied;
  }

  /** Whether something was done. */
  async tidyCommit(id: PlanCommitId): Promise<boolean> {
    try {
      return await this.#tidy(id);
    } catch (error) {
      this.#context.logger.warn('a commit of a plan could not be tidied up yet', { id, error });
      return false;
    }
  }

  async #tidy(id: PlanCommitId): Promise<boolean> {
    const { store, clock, faults } = this.#context;
    const { commit, hasPlan } = await store.read(async (tables) => {
      const commit = await tables.plans.findCommit(id);
      const plan = commit === undefined ? undefined : await tables.plans.find(commit.planId);
      return { commit, hasPlan: plan !== undefined };
    });
    if (commit === undefined || commit.left === 'nothing' || commit.state === 'preparing') return false;
    const isKept = hasPlan && commit.keptUntilMs !== null && commit.keptUntilMs > clock.nowMs();
    if (isKept && commit.left === 'refs') return false;
    if (commit.left === 'everything' && commit.leaseId !== null) await this.#leases.end(commit.leaseId);
    await faults.hit('after-plan-lease-ended');
    if (!isKept) await this.#release(commit);
    await faults.hit('after-plan-released');
    await store.transact(async (tables) => {
      const found = await tables.plans.findCommit(id);
      if (found === undefined) return;
      // What a plan that is gone has left is gone with its last trace.
      if (!hasPlan && !isKept) await tables.plans.removeCommit(id);
      else await tables.plans.putCommit({ ...found, left: isKept ? 'refs' : 'nothing' });
    });
    return true;
  }

  async #release(commit: PlanCommitRecord): Promise<void> {
    const hold = `plan/${commit.planId}/${commit.id}`;
    for (const workspaceId of commit.targets) {
      try {
        await this.#work.changes.release({ workspaceId, hold });
      } catch (error) {
        // What a workspace that is gone has held is gone with it.
        if (!isPlatformError(error, 'workspace_not_found')) throw error;
      }
    }
  }
}
