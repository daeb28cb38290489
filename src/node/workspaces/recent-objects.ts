/**
 * What answers have named since objects were last tidied: its caller may be about to hold it, so it is kept until it is old, whatever the age of the
 * object itself. After a restart of the node the age of the objects alone decides, which is that of whatever was made then.
 */
import type { Clock, FaultPoints } from '../../base/index.ts';
import { type GitProgram, removeLocks, tidyObjects } from '../../layers/index.ts';
import type { WorkspaceId } from '../../protocol/index.ts';

const recentMax = 100_000;
const prefix = 'refs/recent/';

export class RecentObjects {
  readonly #clock: Clock;
  readonly #git: GitProgram;
  readonly #faults: FaultPoints;
  /** By object, oldest answer first. */
  readonly #byWorkspace = new Map<WorkspaceId, Map<string, number>>();

  constructor(options: { readonly clock: Clock; readonly git: GitProgram; readonly faults: FaultPoints }) {
    this.#clock = options.clock;
    this.#faults = options.faults;
    this.#git = options.git;
  }

  add(workspaceId: WorkspaceId, object: string): void {
    const known = this.#byWorkspace.get(workspaceId) ?? new Map<string, number>();
    this.#byWorkspace.set(workspaceId, known);
    known.delete(object);
    known.set(object, this.#clock.nowMs());
    if (known.size > recentMax) known.delete(known.keys().next().value!);
  }

  forget(workspaceId: WorkspaceId): void {
    this.#byWorkspace.delete(workspaceId);
  }

  /** The caller changes the workspace alone. While git looks at what is held, this is held too; refs that a crash leaves are replaced the next time. */
  async tidy(
    workspaceId: WorkspaceId,
    repository: string,
    options: { readonly olderThanMs: number; readonly timeoutMs: number },
  ): Promise<{ readonly bytes: number }> {
    const known = this.#byWorkspace.get(workspaceId) ?? new Map<string, number>();
    const youngerThanMs = this.#clock.nowMs() - options.olderThanMs;
    for (const [object, atMs] of known) if (atMs <= youngerThanMs) known.delete(object);
    // Only this order changes refs now: a lock is one that a git left when it was killed.
    await removeLocks(repository);
    await this.#clear(repository);
    const stdin = [...known.keys()].map((object) => `update ${prefix}${object} ${object}\n`).join('');
    await this.#git.run(repository, ['update-ref', '--no-deref', '--stdin'], { stdin });
    await this.#faults.hit('workspace-tidy-marked');
    try {
      return await tidyObjects(this.#git, repository, { ...options, faults: this.#faults });
    } finally {
      await this.#clear(repository);
    }
  }

  async #clear(repository: string): Promise<void> {
    const words = ['for-each-ref', '--format=delete %(refname)', prefix];
    const { stdout } = await this.#git.run(repository, words);
    if (stdout.byteLength > 0)
      await this.#git.run(repository, ['update-ref', '--no-deref', '--stdin'], { stdin: stdout });
  }
}
