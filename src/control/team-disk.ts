/**
 * What a team may take on disks: the limits of its sandboxes, its checkpoints and its backups together. A sandbox without a limit of its own
 * counts with what it had used when it was last looked at; checkpoints count with what they refer to, so what they share counts for each.
 */
import { PlatformError, type SandboxId, type TeamId } from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { ControlContext } from './context.ts';

const pageSize = 1_000;

export class TeamDisk {
  readonly #context: ControlContext;
  /** Of sandboxes without a limit, in teams with one. Replaced as a whole by each look. */
  #used: ReadonlyMap<SandboxId, number> = new Map();

  constructor(context: ControlContext) {
    this.#context = context;
  }

  /** Refuses when the team has not this much left. */
  async admit(teamId: TeamId, addedBytes: number): Promise<void> {
    const { store } = this.#context;
    const team = await store.read((tables) => tables.teams.find(teamId));
    const limit = team?.diskBytes ?? null;
    if (limit === null) return;
    const taken = await store.read(async (tables) => {
      let bytes = (await tables.checkpoints.totalBytes(teamId)) + (await tables.backups.totalBytes(teamId));
      for (let last: SandboxRecord | undefined; ; ) {
        const page = await tables.sandboxes.list({ teamId }, { limit: pageSize, ...(last && { after: last }) });
        for (const { id, spec } of page) bytes += spec.limits.diskBytes ?? this.#used.get(id) ?? 0;
        if (page.length < pageSize) return bytes;
        last = page.at(-1);
      }
    });
    if (taken + addedBytes <= limit && taken < limit) return;
    const details = { limitBytes: limit, takenBytes: taken, addedBytes };
    throw new PlatformError('limit_exceeded', `The team may take ${limit} bytes on disks, and takes ${taken}.`, {
      details,
    });
  }

  /** Looks at what sandboxes without a limit use, in teams that have one. A node that does not answer leaves what was known. */
  async look(): Promise<void> {
    const { store, nodes } = this.#context;
    const used = new Map<SandboxId, number>();
    const teams = (await store.read((tables) => tables.teams.list())).filter((team) => team.diskBytes !== null);
    for (const { id: teamId } of teams) {
      for (let last: SandboxRecord | undefined; ; ) {
        const after = last && { after: last };
        const page = await store.read((tables) => tables.sandboxes.list({ teamId }, { limit: pageSize, ...after }));
        for (const { id, nodeId, generation, spec } of page) {
          if ((spec.limits.diskBytes ?? null) !== null) continue;
          const order = { sandboxId: id, generation };
          const known = this.#used.get(id) ?? 0;
          const bytes = nodes.call(nodeId, async (node) => (await node.branches.usage(order)).bytes);
          used.set(id, await bytes.catch(() => known));
        }
        if (page.length < pageSize) break;
        last = page.at(-1);
      }
    }
    this.#used = used;
  }
}
