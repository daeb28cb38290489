/**
 * The nodes of this installation and whether each is in reach. What a node last said stays known while it is away.
 *
 * Invariant: a node counts as reachable from its first answer until a call says `node_unavailable`.
 */
import { isPlatformError, type NodeApi, type NodeId, PlatformError } from '../protocol/index.ts';

interface Link {
  readonly api: NodeApi;
  reachable: boolean;
}

export class NodeDirectory {
  readonly #links = new Map<NodeId, Link>();

  add(nodeId: NodeId, api: NodeApi): void {
    this.#links.set(nodeId, { api, reachable: true });
  }

  ids(): readonly NodeId[] {
    return [...this.#links.keys()];
  }

  isReachable(nodeId: NodeId): boolean {
    return this.#links.get(nodeId)?.reachable ?? false;
  }

  setReachable(nodeId: NodeId, reachable: boolean): void {
    const link = this.#links.get(nodeId);
    if (link !== undefined) link.reachable = reachable;
  }

  /** Where a new sandbox goes: to a node in reach, or else to one that may be back by now. */
  choose(): NodeId {
    for (const [nodeId, link] of this.#links) if (link.reachable) return nodeId;
    const [first] = this.#links.keys();
    if (first !== undefined) return first;
    throw new PlatformError('node_unavailable', 'This server has no node.');
  }

  /** Calls the node, and learns from the answer whether it is in reach. */
  async call<Result>(nodeId: NodeId, work: (api: NodeApi) => Promise<Result>): Promise<Result> {
    const link = this.#links.get(nodeId);
    if (link === undefined) throw new PlatformError('node_unavailable', `Node ${nodeId} is not known to this server.`);
    try {
      const result = await work(link.api);
      link.reachable = true;
      return result;
    } catch (error) {
      if (isPlatformError(error, 'node_unavailable')) link.reachable = false;
      throw error;
    }
  }
}
