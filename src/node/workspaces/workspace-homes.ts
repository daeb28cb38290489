/**
 * The workspaces whose home is this node. Everything that brings new objects happens in a staging, outside of any lock, for it lasts as long as its
 * source or a sandbox does; the lock is held from the look whether everything is there to the objects' names in the repository.
 *
 * Invariants:
 *  - Whoever adds objects or holds uses the workspace; whoever removes some of them, or all, changes it. So nothing is removed between the look that
 *    finds it and the name that keeps it.
 *  - What an answer names is kept for as long as `tidy` says, counted from the answer, also if it is an old object that was there already.
 */
import { AtMost, type Clock, type FaultPoints, noFaults, SharedLock } from '../../base/index.ts';
import {
  checkIds,
  defaultWorkspaceLimits,
  diffTrees,
  exportArchive,
  exportBundle,
  exportCheckout,
  fetchRemote,
  GitProgram,
  importArchive,
  importBundle,
  judgeRemote,
  listHolds,
  mergeTrees,
  noPrivateHosts,
  patchBetween,
  pushToRemote,
  type RemoteRules,
  readCommit,
  readCommits,
  releaseHolds,
  requireObjects,
  requireWhole,
  Staging,
  setHold,
  treeOf,
  verifyTree,
  type WorkspaceLimits,
  writeCommit,
} from '../../layers/index.ts';
import {
  type NodeWorkspaces,
  PlatformError,
  type WorkspaceCommit,
  type WorkspaceId,
  type WorkspaceOrder,
} from '../../protocol/index.ts';
import { asDiskFull } from '../disk-full.ts';
import type { FileCalls } from '../file-calls.ts';
import type { NodeParts } from '../node-parts.ts';
import type { FindCheckout } from './checkout-files.ts';
import { CheckoutCollector } from './collect.ts';
import { HomeDirectories } from './home-directories.ts';
import { RecentObjects } from './recent-objects.ts';

/** Orders of one workspace that keep git busy, or wait for whoever sends; its others wait for one of them. Nobody waits for another workspace's. */
const longAtOnce = 8;

export interface WorkspaceHomesOptions {
  readonly directory: string;
  readonly clock: Clock;
  readonly faults: FaultPoints;
  readonly findCheckout: FindCheckout;
  /** Refuses when the node closes. */
  readonly admit: () => void;
  readonly remotes?: RemoteRules | undefined;
  readonly limits?: Partial<WorkspaceLimits> | undefined;
}

export function workspacesOf(
  { options, clock, paths }: NodeParts,
  given: { readonly files: FileCalls; readonly admit: () => void },
): WorkspaceHomes {
  return new WorkspaceHomes({
    clock,
    directory: paths.workspaces,
    faults: options.faults ?? noFaults,
    remotes: options.remotes,
    limits: options.workspaceLimits,
    findCheckout: (life, path) => given.files.checkout(life, path),
    admit: given.admit,
  });
}

type Order<Name extends keyof NodeWorkspaces> = Parameters<NodeWorkspaces[Name]>[0];
type Answer<Name extends keyof NodeWorkspaces> = ReturnType<NodeWorkspaces[Name]>;

export class WorkspaceHomes implements NodeWorkspaces {
  readonly #git: GitProgram;
  readonly #homes: HomeDirectories;
  readonly #faults: FaultPoints;
  readonly #admit: () => void;
  readonly #limits: WorkspaceLimits;
  readonly #remotes: RemoteRules;
  readonly #recent: RecentObjects;
  readonly #collector: CheckoutCollector;
  /** Guards one workspace's objects against their removal. Alone: nothing else is taken inside. */
  readonly #lock = new SharedLock<WorkspaceId>();
  /** Of the workspaces that have long orders now. */
  readonly #long = new Map<WorkspaceId, AtMost>();

  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<unknown>>();

  constructor(options: WorkspaceHomesOptions) {
    const { faults } = options;
    this.#faults = faults;
    this.#admit = options.admit;
    this.#limits = { ...defaultWorkspaceLimits, ...options.limits };
    this.#remotes = options.remotes ?? noPrivateHosts;
    this.#homes = new HomeDirectories({ root: options.directory, faults });
    this.#git = new GitProgram({ home: this.#homes.home, memoryBytes: this.#limits.gitMemoryBytes });
    this.#recent = new RecentObjects({ clock: options.clock, git: this.#git, faults });
    this.#collector = new CheckoutCollector({
      git: this.#git,
      limits: this.#limits,
      clock: options.clock,
      faults,
      findCheckout: options.findCheckout,
      baselinesOf: (id) => this.#homes.baselines(id),
    });
  }

  open(): Promise<void> {
    return this.#homes.open();
  }

  /** Ends what is under way and waits for it. */
  async close(): Promise<void> {
    this.#closing.abort(new PlatformError('shutting_down', 'The node is closing.'));
    await Promise.allSettled(this.#running);
  }

  create({ workspaceId }: WorkspaceOrder): Promise<void> {
    return this.#change(workspaceId, () => this.#homes.create(workspaceId));
  }

  remove({ workspaceId }: WorkspaceOrder): Promise<void> {
    return this.#change(workspaceId, async () => {
      await this.#homes.remove(workspaceId);
      this.#recent.forget(workspaceId);
    });
  }

  async list(): Promise<readonly WorkspaceId[]> {
    return await this.#homes.list();
  }

  importBytes(
    order: Order<'importBytes'>,
    bytes: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
  ): Promise<WorkspaceCommit> {
    const { source, workspaceId } = order;
    const options = { limits: this.#limits, signal: this.#until(signal) };
    return this.#inStaging(workspaceId, async (staging) => {
      if (source.kind === 'bundle') {
        const commit = await importBundle(this.#git, staging, bytes, { ...options, ref: source.ref });
        return await this.#take(workspaceId, staging, { commit, signal });
      }
      const tree = await importArchive(this.#git, staging, bytes, options);
      await verifyTree(this.#git, staging.path, tree, options);
      const commit = await writeCommit(this.#git, staging.path, { ...order, tree, parents: [], trailers: [] });
      return await this.#take(workspaceId, staging, { commit, signal });
    });
  }

  importRemote(order: Order<'importRemote'>, signal?: AbortSignal): Promise<WorkspaceCommit> {
    const { workspaceId, ref, credentials } = order;
    return this.#inStaging(workspaceId, async (staging) => {
      const remote = await this.#judge(order);
      const call = { remote, credentials, limits: this.#limits, signal: this.#until(signal) };
      const commit = await fetchRemote(this.#git, staging, ref, call);
      return await this.#take(workspaceId, staging, { commit, signal });
    });
  }

  async pushRemote(order: Order<'pushRemote'>, signal?: AbortSignal): Promise<void> {
    const repository = await this.#repository(order);
    await requireObjects(this.#git, repository, [{ id: order.commit, kinds: ['commit'] }]);
    const remote = await this.#judge(order);
    const call = { remote, credentials: order.credentials, limits: this.#limits, signal: this.#until(signal) };
    await pushToRemote(this.#git, repository, order, call);
  }

  async exportBytes(order: Order<'exportBytes'>, signal?: AbortSignal): Answer<'exportBytes'> {
    const repository = await this.#repository(order);
    const { commit, since, kind } = order;
    const commits = [commit, ...since].map((id) => ({ id, kinds: ['commit'] }));
    await requireObjects(this.#git, repository, commits);
    const options = { limits: this.#limits, signal: this.#until(signal) };
    if (kind === 'bundle') return { bytes: exportBundle(this.#git, repository, order, options) };
    if (kind === 'archive') return { bytes: exportArchive(this.#git, repository, commit, options) };
    const staging = () => Staging.open(this.#stagingOptions(order.workspaceId));
    return { bytes: exportCheckout(this.#git, staging, commit, options) };
  }

  async getCommit(order: Order<'getCommit'>): Promise<WorkspaceCommit> {
    return await readCommit(this.#git, await this.#repository(order), order.commit);
  }

  async log(order: Order<'log'>): Promise<readonly WorkspaceCommit[]> {
    return await readCommits(this.#git, await this.#repository(order), order.commit, order.limit);
  }

  async diff(order: Order<'diff'>): Answer<'diff'> {
    const repository = await this.#trees(order, [order.from, order.to]);
    const options = { limit: order.limit, timeoutMs: this.#limits.gitMs };
    return await diffTrees(this.#git, repository, order, options);
  }

  async patch(order: Order<'patch'>, signal?: AbortSignal): Answer<'patch'> {
    const repository = await this.#trees(order, [order.from, order.to]);
    const call = { signal: this.#until(signal), timeoutMs: this.#limits.transferMs };
    return { bytes: patchBetween(this.#git, repository, order, call) };
  }

  async readBlob(order: Order<'readBlob'>, signal?: AbortSignal): Answer<'readBlob'> {
    const repository = await this.#repository(order);
    await requireObjects(this.#git, repository, [{ id: order.blob, kinds: ['blob'] }]);
    const call = { signal: this.#until(signal), timeoutMs: this.#limits.transferMs };
    return { bytes: this.#git.stream(repository, ['cat-file', 'blob', order.blob], call) };
  }

  async recordBaseline(order: Order<'recordBaseline'>): Promise<void> {
    const repository = await this.#repository(order);
    await requireObjects(this.#git, repository, [{ id: order.base, kinds: ['commit', 'tree'] }]);
    await this.#tracked(this.#collector.recordBaseline(order, repository));
  }

  async forgetBaseline(order: Order<'forgetBaseline'>): Promise<void> {
    await this.#collector.forgetBaseline(order);
  }

  collect(order: Order<'collect'>, signal?: AbortSignal): Answer<'collect'> {
    return this.#inStaging(order.workspaceId, async (staging) => {
      await requireObjects(this.#git, staging.path, [{ id: order.base, kinds: ['commit', 'tree'] }]);
      const { tree, leftOut } = await this.#collector.collect(order, staging, this.#until(signal));
      await this.#adopt(order.workspaceId, staging, { object: tree, signal });
      const sides = { from: await treeOf(this.#git, staging.path, order.base), to: tree };
      const repository = this.#homes.repository(order.workspaceId);
      const { counts } = await diffTrees(this.#git, repository, sides, { limit: 0, timeoutMs: this.#limits.gitMs });
      return { tree, counts, leftOut };
    });
  }

  async commitTree(order: Order<'commitTree'>): Promise<WorkspaceCommit> {
    const { workspaceId } = order;
    return await this.#use(workspaceId, async () => {
      const repository = await this.#repository(order);
      const commit = await writeCommit(this.#git, repository, order);
      await this.#faults.hit('workspace-commit-written');
      this.#recent.add(workspaceId, commit);
      return await readCommit(this.#git, repository, commit);
    });
  }

  merge(order: Order<'merge'>, signal?: AbortSignal): Answer<'merge'> {
    const { workspaceId } = order;
    return this.#inStaging(workspaceId, (staging) =>
      this.#lock.use(workspaceId, async () => {
        const wanted = [order.base, order.ours, order.theirs];
        await this.#trees(order, wanted);
        const [base, ours, theirs] = await Promise.all(wanted.map((id) => treeOf(this.#git, staging.path, id)));
        const sides = { base: base!, ours: ours!, theirs: theirs! };
        const call = { signal: this.#until(signal), timeoutMs: this.#limits.gitMs };
        const outcome = await mergeTrees(this.#git, staging, sides, call);
        if (outcome.kind === 'merged') this.#recent.add(workspaceId, outcome.tree);
        return outcome;
      }),
    );
  }

  async hold(order: Order<'hold'>): Promise<void> {
    await this.#use(order.workspaceId, async () => {
      const repository = await this.#repository(order);
      await requireObjects(this.#git, repository, [{ id: order.object, kinds: ['commit', 'tree', 'blob'] }]);
      await setHold(this.#git, repository, order, this.#faults);
    });
  }

  async release(order: Order<'release'>): Promise<void> {
    await this.#use(order.workspaceId, async () => {
      await releaseHolds(this.#git, await this.#repository(order), order.names);
    });
  }

  async holds(order: WorkspaceOrder): Answer<'holds'> {
    return await listHolds(this.#git, await this.#repository(order));
  }

  async tidy(order: Order<'tidy'>): Answer<'tidy'> {
    const { workspaceId, olderThanMs } = order;
    return await this.#change(workspaceId, async () => {
      const repository = await this.#repository(order);
      return await this.#recent.tidy(workspaceId, repository, { olderThanMs, timeoutMs: this.#limits.gitMs });
    });
  }

  /** A commit that came from outside: verified, then adopted. */
  async #take(
    workspaceId: WorkspaceId,
    staging: Staging,
    { commit, signal }: { readonly commit: string; readonly signal: AbortSignal | undefined },
  ): Promise<WorkspaceCommit> {
    const view = await readCommit(this.#git, staging.path, commit);
    await verifyTree(this.#git, staging.path, view.tree, { limits: this.#limits, signal });
    await this.#adopt(workspaceId, staging, { object: commit, signal });
    return view;
  }

  async #adopt(
    workspaceId: WorkspaceId,
    staging: Staging,
    { object, signal }: { readonly object: string; readonly signal: AbortSignal | undefined },
  ): Promise<void> {
    await this.#lock.use(workspaceId, async () => {
      await this.#homes.require(workspaceId);
      await requireWhole(this.#git, staging, object, { limits: this.#limits, signal });
      await staging.adopt();
      this.#recent.add(workspaceId, object);
    });
  }

  async #inStaging<Result>(workspaceId: WorkspaceId, work: (staging: Staging) => Promise<Result>): Promise<Result> {
    this.#admit();
    await this.#homes.require(workspaceId);
    const long = this.#long.get(workspaceId) ?? new AtMost(longAtOnce);
    this.#long.set(workspaceId, long);
    const done = long.run(() => Staging.use(this.#stagingOptions(workspaceId), work));
    return await this.#tracked(done).finally(() => {
      if (long.size === 0) this.#long.delete(workspaceId);
    });
  }

  #use<Result>(workspaceId: WorkspaceId, work: () => Promise<Result>): Promise<Result> {
    this.#admit();
    return this.#tracked(this.#lock.use(workspaceId, work));
  }

  #change<Result>(workspaceId: WorkspaceId, work: () => Promise<Result>): Promise<Result> {
    this.#admit();
    return this.#tracked(this.#lock.change(workspaceId, work));
  }

  async #tracked<Result>(work: Promise<Result>): Promise<Result> {
    this.#running.add(work);
    try {
      return await work;
    } catch (error) {
      throw asDiskFull(error);
    } finally {
      this.#running.delete(work);
    }
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#closing.signal : AbortSignal.any([signal, this.#closing.signal]);
  }

  #stagingOptions(workspaceId: WorkspaceId) {
    return {
      git: this.#git,
      repository: this.#homes.repository(workspaceId),
      parent: this.#homes.staging(workspaceId),
      faults: this.#faults,
    };
  }

  async #repository({ workspaceId }: WorkspaceOrder): Promise<string> {
    this.#admit();
    await this.#homes.require(workspaceId);
    return this.#homes.repository(workspaceId);
  }

  async #trees(order: WorkspaceOrder, ids: readonly string[]): Promise<string> {
    checkIds(...ids);
    const repository = await this.#repository(order);
    await requireObjects(
      this.#git,
      repository,
      ids.map((id) => ({ id, kinds: ['commit', 'tree'] })),
    );
    return repository;
  }

  async #judge(order: Order<'importRemote'>) {
    if (order.credentials !== null && /[\0\r\n]/.test(order.credentials.username + order.credentials.password)) {
      throw new PlatformError('invalid_request', 'Credentials have no line breaks.');
    }
    return await judgeRemote(order.url, { rules: this.#remotes, hasCredentials: order.credentials !== null });
  }
}
