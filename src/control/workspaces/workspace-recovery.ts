/**
 * What crashes leave of workspaces: deletions that were begun, holds of operations that are over, versions that are held only by those. In a loop, and
 * each step can be repeated. It also keeps caches and object stores within their bounds.
 */
import { isPlatformError, type WorkspaceId } from '../../protocol/index.ts';
import type { WorkspaceRecord } from '../../store/index.ts';
import type { ControlContext } from '../context.ts';
import type { AttachCache } from './attach-cache.ts';
import { lookHolds, type SandboxChanges, versionHold } from './sandbox-changes.ts';
import type { WorkspaceDirectory } from './workspace-directory.ts';
import type { Workspaces } from './workspaces.ts';

const pageSize = 1_000;
/** What nothing holds may still be on its way to being held. */
const tidiedAfterMs = 24 * 3600 * 1000;
const tidyIntervalMs = 6 * 3600 * 1000;

interface RecoveryParts {
  readonly directory: WorkspaceDirectory;
  readonly workspaces: Workspaces;
  readonly cache: AttachCache;
  readonly changes: SandboxChanges;
}

export class WorkspaceRecovery {
  readonly #context: ControlContext;
  readonly #parts: RecoveryParts;
  /** Those whose holds were compared since the start. What this run leaves it knows of. */
  readonly #compared = new Set<WorkspaceId>();
  readonly #tidiedAtMs = new Map<WorkspaceId, number>();

  constructor(context: ControlContext, parts: RecoveryParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async tick(): Promise<void> {
    await this.#parts.cache.trim();
    for (const workspace of await this.#all()) {
      try {
        await this.#settle(workspace);
      } catch (error) {
        if (!isPlatformError(error)) throw error;
        this.#context.logger.warn('a workspace could not be settled', { workspaceId: workspace.id, error });
      }
    }
  }

  async #settle(workspace: WorkspaceRecord): Promise<void> {
    const { id } = workspace;
    if (workspace.state === 'deleting') {
      await this.#parts.workspaces.finishDelete(id);
      this.#compared.delete(id);
      this.#tidiedAtMs.delete(id);
      return;
    }
    if (workspace.state === 'creating') return; // Whoever imports into it makes its home first.
    if (!this.#compared.has(id)) await this.#compareHolds(workspace);
    await this.#tidy(workspace);
  }

  /** Every version is held by its number before anything else is let go of. */
  async #compareHolds(workspace: WorkspaceRecord): Promise<void> {
    const { id: workspaceId } = workspace;
    await this.#parts.directory.home(workspace, async (home) => {
      const holds = await home.holds({ workspaceId });
      const known = new Set(holds.map(({ name }) => name));
      for (const { number, commit: object } of await this.#versions(workspaceId)) {
        const name = versionHold(number);
        if (!known.has(name)) await home.hold({ workspaceId, name, object });
      }
      await this.#context.faults.hit('after-versions-held');
      const names = holds.map(({ name }) => name).filter((name) => this.#isLeftOver(name));
      await home.release({ workspaceId, names });
    });
    this.#compared.add(workspaceId);
  }

  /** What looks held is named by no operation, and nobody who still looks needs it: objects are kept for a while without. */
  #isLeftOver(name: string): boolean {
    if (name.startsWith(lookHolds)) return true;
    const hold = /^operation\/opr[a-z0-9]{20}(?=\/|$)/.exec(name)?.[0];
    return hold !== undefined && !this.#parts.changes.isClaimed(hold);
  }

  async #tidy(workspace: WorkspaceRecord): Promise<void> {
    const { id: workspaceId } = workspace;
    const nowMs = this.#context.clock.nowMs();
    const lastMs = this.#tidiedAtMs.get(workspaceId);
    this.#tidiedAtMs.set(workspaceId, lastMs ?? nowMs);
    if (lastMs === undefined || nowMs - lastMs < tidyIntervalMs) return;
    this.#tidiedAtMs.set(workspaceId, nowMs);
    await this.#parts.directory.home(workspace, (home) => home.tidy({ workspaceId, olderThanMs: tidiedAfterMs }));
  }

  async #all(): Promise<WorkspaceRecord[]> {
    return await this.#context.store.read(async (tables) => {
      const found: WorkspaceRecord[] = [];
      for (;;) {
        const last = found.at(-1);
        const page = await tables.workspaces.list({}, { limit: pageSize, ...(last && { after: last }) });
        found.push(...page);
        if (page.length < pageSize) return found;
      }
    });
  }

  async #versions(workspaceId: WorkspaceId) {
    return await this.#context.store.read(async (tables) => {
      const found = [...(await tables.workspaces.versions(workspaceId, { limit: pageSize }))];
      for (let last = found.at(-1); last !== undefined && last.number > 1; last = found.at(-1)) {
        const page = { before: last.number, limit: pageSize };
        found.push(...(await tables.workspaces.versions(workspaceId, page)));
      }
      return found;
    });
  }
}
