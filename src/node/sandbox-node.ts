/**
 * The sandboxes of one machine: does what control orders, and tells what happened. It decides nothing beyond the rules of NodeApi.
 *
 * Invariants:
 *  - Whoever changes a sandbox holds its lock from reading the record to writing it.
 *  - A sandbox is in #sandboxes exactly while its directory is below `sandboxes/`: complete, and with a record that says what was applied.
 *  - `client` is set exactly while the record says `running` or `paused`.
 */
import { randomBytes } from 'node:crypto';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import {
  AtMost,
  apartFromLocks,
  type Clock,
  KeyedMutex,
  type Logger,
  noFaults,
  silentLogger,
  syncDirectory,
  systemTimers,
} from '../base/index.ts';
import { listListeningSockets } from '../isolation/index.ts';
import {
  type ApplySettingsOrder,
  type CreateSandboxOrder,
  type EndReason,
  type LifeOrder,
  type NodeApi,
  type NodeDescription,
  type NodeEvent,
  type NodeInventory,
  type NodeSandbox,
  PlatformError,
  type QuarantinedSandbox,
  type SandboxId,
  type StartSandboxOrder,
  type StopSandboxOrder,
} from '../protocol/index.ts';
import { applySettings } from './apply-settings.ts';
import { CommandCalls } from './command-calls.ts';
import { deadlineOf, nextDeadline } from './deadline.ts';
import { rethrowDiskFull } from './disk-full.ts';
import { EventFeed } from './event-feed.ts';
import { FileCalls } from './file-calls.ts';
import { FrozenCommands } from './frozen-commands.ts';
import { IdSlots } from './id-slots.ts';
import type { SandboxNodeOptions } from './node-options.ts';
import { type NodeParts, openNodeParts } from './node-parts.ts';
import type { NodePaths } from './node-paths.ts';
import { endOf, type NodeRecord, viewOf, writeRecord } from './node-record.ts';
import { NodeSurfaces } from './node-surfaces.ts';
import { admitNew, decideCreate, decideSettings, decideStart, refuseOlderLife } from './order-rules.ts';
import { PortCalls } from './port-calls.ts';
import { recoverSandboxes, runningOf, type FoundSandbox as Sandbox } from './recovery.ts';
import { SandboxBranches } from './sandbox-branches.ts';
import { clearEarlierLife, readEndReason, writeMetadata } from './sandbox-files.ts';
import { SandboxLives } from './sandbox-lives.ts';
import { SandboxMaking } from './sandbox-making.ts';
import { SandboxProcesses, type SandboxProcessesOptions } from './sandbox-processes.ts';
import { SandboxTerminals } from './sandbox-terminals.ts';
import { SettingsFiles } from './settings-files.ts';
import { SpareDirectories } from './spare-directories.ts';
import { hostName, SandboxTemplates } from './templates/sandbox-templates.ts';
import { owingStart, settleStart } from './templates/start-command.ts';
import { type WorkspaceHomes, workspacesOf } from './workspaces/workspace-homes.ts';

const defaultCapacity = 1_000;
/** Lives that ended by themselves and are being recorded. */
const endsAtOnce = 16;

export class SandboxNode extends NodeSurfaces implements NodeApi {
  readonly #parts: NodeParts;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #paths: NodePaths;
  readonly #lives: SandboxLives;
  readonly #making: SandboxMaking;
  readonly #slots: IdSlots;
  readonly #spares: SpareDirectories;
  readonly #settings = new SettingsFiles();
  readonly #feed = new EventFeed();
  readonly #sandboxes = new Map<SandboxId, Sandbox>();
  readonly #quarantined: QuarantinedSandbox[] = [];
  /** Guards one sandbox's directory, record and life. Rank 2. */
  readonly #sandboxLock = new KeyedMutex<SandboxId>({ name: 'sandbox of a node', rank: 2 });
  /** Taken inside a sandbox's lock. */
  readonly #ends = new AtMost(endsAtOnce);
  protected readonly commands = new CommandCalls({
    get: (sandboxId) => this.#get(sandboxId),
    admit: () => this.#refuseWhenClosing(),
    clock: () => this.#clock,
    load: (sandboxId) => this.#parts.cgroups.load(sandboxId),
  });
  protected readonly files = new FileCalls((order) => {
    this.#refuseWhenClosing();
    const { sandboxId } = order;
    return { ...this.#get(sandboxId), directory: this.#paths.sandbox(sandboxId), nowMs: this.#clock.nowMs() };
  });
  protected readonly processes: SandboxProcesses;
  protected readonly ports = new PortCalls({
    get: (sandboxId) => this.#get(sandboxId),
    listening: (sandboxId, options) => listListeningSockets(this.#parts.cgroups.groupOf(sandboxId), options),
  });
  readonly terminals: SandboxTerminals;
  readonly branches: SandboxBranches;
  readonly templates: SandboxTemplates;
  readonly workspaces: WorkspaceHomes;
  readonly #background = new Set<Promise<void>>();
  #creating = 0;
  #closing: Promise<void> | undefined;

  private constructor(parts: NodeParts) {
    super();
    const { options } = parts;
    this.#parts = parts;
    this.#clock = parts.clock;
    this.#log = options.log ?? silentLogger;
    this.#paths = parts.paths;
    this.#spares = new SpareDirectories({ parent: this.#paths.spare, shared: parts.shared });
    this.#slots = new IdSlots({ startAt: parts.identity.slotStart });
    this.#lives = new SandboxLives({ ...parts, faults: this.#faults, openGuards: options.openGuards ?? [] });
    this.#making = new SandboxMaking({
      ...parts,
      lives: this.#lives,
      spares: this.#spares,
      faults: this.#faults,
      log: this.#log,
    });
    this.templates = new SandboxTemplates({
      ...parts,
      lives: this.#lives,
      slots: this.#slots,
      records: () => [...this.#sandboxes.values()].map(({ record }) => record),
      hasUnreadable: () => this.#quarantined.length > 0,
      faults: this.#faults,
      log: this.#log,
    });
    const tables: SandboxProcessesOptions = {
      get: (sandboxId) => {
        this.#refuseWhenClosing();
        return { ...this.#get(sandboxId), directory: this.#paths.sandbox(sandboxId) };
      },
      clock: this.#clock,
      log: this.#log,
      faults: this.#faults,
      removeTree: (path) => this.#lives.removeTree(path),
    };
    this.processes = new SandboxProcesses(tables);
    this.terminals = new SandboxTerminals(tables);
    this.workspaces = workspacesOf(parts, { files: this.files, admit: () => this.#refuseWhenClosing() });
    this.branches = new SandboxBranches({
      ...parts,
      frozen: new FrozenCommands({ cgroups: parts.cgroups, faults: this.#faults }),
      timers: systemTimers,
      faults: this.#faults,
      log: this.#log,
      publish: (event) => this.#feed.publish(event),
      foundationOf: (checkpointId) => this.templates.foundationOf(checkpointId),
      get: (sandboxId) => this.#get(sandboxId),
      change: (order, task) => this.#change(order, task),
      inBackground: (work) => this.#inBackground(work),
      apply: (sandbox, next) => this.#applyLocked(sandbox, next),
      begin: (sandbox, next) => this.#beginLocked(sandbox, next),
      end: (sandbox) => this.#endByForceLocked(sandbox),
      startCommand: (sandbox) => this.#startCommandLocked(sandbox),
    });
  }

  /** Finds every sandbox again that is on disk, alive or not. Refuses when another process uses the directory. */
  static open(options: SandboxNodeOptions): Promise<SandboxNode> {
    return openNodeParts(options, async (parts) => {
      const node = new SandboxNode(parts);
      await node.#recover();
      return node;
    });
  }

  /** Lets go of everything; the sandboxes go on. May be called twice. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async describe(): Promise<NodeDescription> {
    return {
      nodeId: this.#parts.identity.nodeId,
      version: this.#parts.options.version,
      bootId: this.#clock.bootId,
      templates: [hostName],
      capacity: { sandboxes: this.#capacity },
    };
  }

  async inventory(): Promise<NodeInventory> {
    const sandboxes = [...this.#sandboxes.values()].map(({ record }) => viewOf(record));
    return { sandboxes, quarantined: [...this.#quarantined] };
  }

  async findSandbox(sandboxId: SandboxId): Promise<NodeSandbox | undefined> {
    const sandbox = this.#sandboxes.get(sandboxId);
    return sandbox === undefined ? undefined : viewOf(sandbox.record);
  }

  createSandbox(order: CreateSandboxOrder): Promise<NodeSandbox> {
    return this.#change(order, async () => {
      const known = this.#sandboxes.get(order.sandboxId);
      if (decideCreate(known?.record, order) === 'repeat') return viewOf(known!.record);
      const view = await this.#createLocked(order);
      const sandbox = this.#get(order.sandboxId);
      await this.#startCommandLocked(sandbox, () => this.#deleteLocked(order.sandboxId, sandbox));
      return view;
    });
  }

  startSandbox(order: StartSandboxOrder): Promise<NodeSandbox> {
    return this.#change(order, async () => {
      const sandbox = this.#get(order.sandboxId);
      if (decideStart(sandbox.record, order) === 'repeat') return viewOf(sandbox.record);
      await this.#startLocked(sandbox, order);
      await this.#startCommandLocked(sandbox);
      return viewOf(sandbox.record);
    });
  }

  stopSandbox(order: StopSandboxOrder): Promise<NodeSandbox> {
    return this.#change(order, async () => {
      const sandbox = this.#get(order.sandboxId);
      refuseOlderLife(sandbox.record, order);
      const { client } = sandbox;
      if (client !== undefined) await this.#lives.end(order.sandboxId, { client, graceMs: order.graceMs });
      // An order for a life that has not begun ends it before it can: a late start of it is refused.
      const ends = client !== undefined || order.generation > sandbox.record.generation;
      if (ends) await this.#endLocked(sandbox, { reason: 'requested', generation: order.generation });
      return viewOf(sandbox.record);
    });
  }

  deleteSandbox(order: LifeOrder): Promise<void> {
    return this.#change(order, async () => {
      const sandbox = this.#sandboxes.get(order.sandboxId);
      if (sandbox === undefined) return;
      refuseOlderLife(sandbox.record, order);
      await this.#deleteLocked(order.sandboxId, sandbox);
    });
  }

  applySettings(order: ApplySettingsOrder): Promise<NodeSandbox> {
    return this.#change(order, async () => {
      const sandbox = this.#get(order.sandboxId);
      if (decideSettings(sandbox.record, order) === 'repeat') return viewOf(sandbox.record);
      await this.#applyLocked(sandbox, {
        ...sandbox.record,
        version: order.version,
        settings: order.settings,
        deadlineBootMs: nextDeadline(sandbox.record, order.settings, this.#clock),
      });
      return viewOf(sandbox.record);
    });
  }

  watch(signal: AbortSignal): AsyncIterable<NodeEvent> {
    return this.#feed.watch(signal);
  }

  async #createLocked(order: CreateSandboxOrder): Promise<NodeSandbox> {
    const { sandboxId } = order;
    admitNew({ count: this.#sandboxes.size + this.#creating, capacity: this.#capacity });
    const slot = this.#slots.take();
    this.#creating++;
    let letGo = () => {};
    try {
      const foundation = await this.templates.foundationFor(order);
      letGo = foundation.release;
      const sandbox = await this.#making.make(order, { slot, foundation });
      this.#sandboxes.set(sandboxId, sandbox);
      this.#follow(sandbox);
      await this.#faults.hit('node-create-before-answer');
      return viewOf(sandbox.record);
    } catch (error) {
      if (!this.#sandboxes.has(sandboxId)) this.#slots.release(slot);
      throw error;
    } finally {
      this.#creating--;
      letGo();
    }
  }

  /** What the template starts in every life; where it fails, the life is taken back. */
  async #startCommandLocked(sandbox: Sandbox, takeBack = () => this.#endByForceLocked(sandbox)): Promise<void> {
    const directory = this.#paths.sandbox(sandbox.record.mark.sandboxId);
    await settleStart(sandbox, { directory, calls: this, faults: this.#faults, takeBack });
  }

  async #endByForceLocked(sandbox: Sandbox): Promise<void> {
    await this.#lives.clear(sandbox.record.mark.sandboxId);
    await this.#endLocked(sandbox, { reason: 'requested' });
  }

  async #startLocked(sandbox: Sandbox, order: StartSandboxOrder): Promise<void> {
    await this.#parts.storage.shorten(sandbox.record.writable);
    await this.#beginLocked(sandbox, {
      ...sandbox.record,
      generation: order.generation,
      version: order.version,
      settings: order.settings,
      deadlineBootMs: deadlineOf(order.settings, this.#clock),
      bootId: this.#clock.bootId,
      life: { kind: 'running' },
    });
    await this.#faults.hit('node-start-before-answer');
  }

  /** Begins the life that `wanted` tells of. When it fails, the sandbox is as it was, and nothing runs. */
  async #beginLocked(sandbox: Sandbox, wanted: NodeRecord): Promise<void> {
    const next = owingStart(wanted);
    const { sandboxId } = next.mark;
    const directory = this.#paths.sandbox(sandboxId);
    await clearEarlierLife(directory, sandbox.record.generation);
    await this.#parts.shared.ready(directory);
    await writeMetadata(directory, next.settings);
    const client = await this.#lives.begin(next, directory);
    try {
      await writeRecord(directory, next);
    } catch (error) {
      await client.close();
      await this.#lives.clear(sandboxId);
      throw error;
    }
    Object.assign(sandbox, { record: next, client });
    this.#follow(sandbox);
    this.#resume({ sandboxId, generation: next.generation });
  }

  async #applyLocked(sandbox: Sandbox, next: NodeRecord): Promise<void> {
    sandbox.record = await applySettings({
      record: sandbox.record,
      next,
      client: sandbox.client,
      directory: this.#paths.sandbox(next.mark.sandboxId),
      files: this.#settings,
      faults: this.#faults,
      networks: this.#parts.networks,
    });
    this.branches.expiries.follow(sandbox.record);
  }

  /** Records the end of a life of which nothing is left. */
  async #endLocked(sandbox: Sandbox, end: { readonly reason: EndReason; readonly generation?: number }): Promise<void> {
    const { record, client } = sandbox;
    const life = { kind: 'ended', reason: end.reason, atMs: this.#clock.nowMs() } as const;
    const generation = Math.max(record.generation, end.generation ?? 0);
    await this.#faults.hit('node-end-before-record');
    sandbox.record = { ...record, generation, life: record.life.kind === 'ended' ? record.life : life };
    sandbox.client = undefined;
    this.branches.expiries.forget(record.mark.sandboxId);
    await this.#endTables(record.mark.sandboxId);
    await client?.close();
    try {
      await writeRecord(this.#paths.sandbox(record.mark.sandboxId), sandbox.record);
    } catch (error) {
      if (client === undefined) {
        sandbox.record = record; // Only the generation was to change, and it did not.
        throw error;
      }
      // Its processes are gone whatever the disk says; the next start of the node finds that out by itself.
      this.#log.error('The end of a sandbox could not be written.', { sandboxId: record.mark.sandboxId, error });
    }
    await this.#faults.hit('node-end-after-record');
    if (client !== undefined) this.#feed.publish(endOf(record, life));
  }

  async #deleteLocked(sandboxId: SandboxId, sandbox: Sandbox): Promise<void> {
    const { record, client } = sandbox;
    await this.#lives.clear(sandboxId);
    // What cannot be written is about to be removed.
    await this.#endTables(sandboxId).catch((error: unknown) => this.#log.warn('An end was not kept.', { error }));
    await this.#faults.hit('node-delete-before-trash');
    const trash = join(this.#paths.trash, `${sandboxId}-${randomBytes(6).toString('hex')}`);
    await rename(this.#paths.sandbox(sandboxId), trash);
    this.#sandboxes.delete(sandboxId);
    this.branches.expiries.forget(sandboxId);
    await Promise.all([this.processes.forget(sandboxId), this.terminals.forget(sandboxId)]);
    await this.#settings.forget(this.#paths.sandbox(sandboxId));
    sandbox.client = undefined;
    this.#slots.release(record.slot);
    await client?.close();
    if (client !== undefined) this.#feed.publish(endOf(record, { reason: 'requested', atMs: this.#clock.nowMs() }));
    await syncDirectory(this.#paths.sandboxes);
    await this.#faults.hit('node-delete-after-trash');
    const removeTree = this.#parts.shared.remove(trash).then(() => this.#lives.removeTree(trash));
    const removed = Promise.all([removeTree, this.#parts.storage.discard(record.writable)]);
    await removed.catch((error: unknown) => {
      this.#log.warn('Deleted files are left until the node starts again.', { sandboxId, error });
    });
    if (record.template !== undefined) this.#inBackground(this.templates.collect());
  }

  /** Notices when init ends by itself. */
  #follow(sandbox: Sandbox): void {
    const { client } = sandbox;
    const { sandboxId } = sandbox.record.mark;
    this.branches.expiries.follow(sandbox.record);
    void client?.gone.then(() => {
      const record = async () => {
        if (this.#closing !== undefined || sandbox.client !== client) return;
        await this.#lives.clear(sandboxId);
        const reason = await readEndReason(this.#paths.sandbox(sandboxId), sandbox.record.generation);
        await this.#endLocked(sandbox, { reason });
      };
      this.#inBackground(apartFromLocks(() => this.#sandboxLock.run(sandboxId, () => this.#ends.run(record))));
    });
  }

  async #recover(): Promise<void> {
    const own = { lives: this.#lives, slots: this.#slots, log: this.#log };
    const found = await recoverSandboxes({ ...this.#parts, ...own });
    await this.#parts.networks.restore(found.sandboxes.flatMap((one) => runningOf(one, this.#paths)));
    this.#quarantined.push(...found.quarantined);
    await this.#parts.storage.begin(new Set(found.sandboxes.map(({ record }) => record.writable)), {
      keepsUnknown: found.quarantined.length > 0,
    });
    for (const sandbox of found.sandboxes) {
      const { mark, generation } = sandbox.record;
      this.#sandboxes.set(mark.sandboxId, sandbox);
      this.#follow(sandbox);
      this.#resume({ sandboxId: mark.sandboxId, generation });
    }
    await this.templates.open();
    await this.workspaces.open();
    // A node that closes meanwhile leaves it to the next one.
    const takeBack = (one: Sandbox) => (this.#closing ? Promise.resolve() : this.#endByForceLocked(one));
    const finish = (one: Sandbox) =>
      this.#change(one.record.mark, () => this.#startCommandLocked(one, () => takeBack(one)));
    for (const one of found.sandboxes) if (one.client && one.record.startOwed) this.#inBackground(finish(one));
    for (const path of found.trash) this.#inBackground(this.#lives.removeTree(path));
  }

  async #close(): Promise<void> {
    this.#feed.close();
    this.ports.close();
    this.branches.expiries.close();
    await Promise.all([this.templates.close(), this.workspaces.close()]);
    await Promise.all(this.#background);
    await Promise.all([...this.#sandboxes.keys()].map((sandboxId) => this.#sandboxLock.run(sandboxId, async () => {})));
    await Promise.all([this.processes.close(), this.terminals.close()]);
    await Promise.all([...this.#sandboxes.values()].map(({ client }) => client?.close()));
    await this.#settings.close();
    await this.#spares.close();
    await this.#parts.storage.close();
    await this.#parts.networks.close({ isEmpty: this.#sandboxes.size === 0 });
    await this.#parts.shared.close({ isEmpty: this.#sandboxes.size === 0 });
    await this.#parts.spawner.close();
    if (this.#sandboxes.size === 0) await this.#parts.cgroups.removeRoots();
    await this.#parts.lock.release();
  }

  async #change<Result>(order: Pick<LifeOrder, 'sandboxId'>, task: () => Promise<Result>): Promise<Result> {
    this.#refuseWhenClosing();
    return await this.#sandboxLock.run(order.sandboxId, async () => {
      this.#refuseWhenClosing();
      return await task().catch(rethrowDiskFull);
    });
  }

  #refuseWhenClosing(): void {
    if (this.#closing !== undefined) throw new PlatformError('shutting_down', 'The node is closing.');
  }

  /** Whoever reads what ran there hears that it is over. */
  async #endTables(sandboxId: SandboxId): Promise<void> {
    await Promise.all([this.processes.lifeEnded(sandboxId), this.terminals.lifeEnded(sandboxId)]);
  }

  #resume(order: LifeOrder): void {
    this.#inBackground(this.processes.resume(order));
    this.#inBackground(this.terminals.resume(order));
  }

  #inBackground(work: Promise<void>): void {
    const logged = work.catch((error: unknown) => this.#log.error('Work in the background failed.', { error }));
    this.#background.add(logged);
    void logged.then(() => this.#background.delete(logged));
  }

  #get(sandboxId: SandboxId): Sandbox {
    const sandbox = this.#sandboxes.get(sandboxId);
    if (sandbox === undefined) throw new PlatformError('sandbox_not_found', `This node has no sandbox ${sandboxId}.`);
    return sandbox;
  }

  get #capacity(): number {
    return this.#parts.options.capacity ?? defaultCapacity;
  }

  get #faults() {
    return this.#parts.options.faults ?? noFaults;
  }
}
