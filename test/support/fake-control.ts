/** A control that keeps a few sandboxes in memory and writes down what it was asked, for tests of what stands before it. */
import type { Caller } from '../../src/control/index.ts';
import {
  type EventView,
  type ExecResult,
  type Id,
  type IdKind,
  idPrefixes,
  PlatformError,
  type SandboxId,
  type SandboxView,
  type Scope,
} from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/index.ts';
import { fakeControlBranches } from './fake-control-branches.ts';
import { fakeControlPlans } from './fake-control-plans.ts';
import { fakeControlWorkspaces } from './fake-control-workspaces.ts';
import { FakeControlFiles } from './fake-files.ts';
import { fakeControlPorts } from './fake-ports.ts';
import { noTemplateCalls } from './fake-templates.ts';

export function testId<Kind extends IdKind>(kind: Kind, name: string): Id<Kind> {
  return `${idPrefixes[kind]}${name.padEnd(20, '0')}` as Id<Kind>;
}

export const goodKey = `atoll_${'a'.repeat(40)}`;
const aDay = '2030-01-01T00:00:00.000Z';

export function testCaller(options: { scopes?: readonly Scope[]; sandboxId?: SandboxId } = {}): Caller {
  return {
    keyId: testId('key', 'a'),
    teamId: testId('team', 'a'),
    userId: null,
    scopes: options.scopes ?? ['admin'],
    sandboxId: options.sandboxId ?? null,
    name: 'test',
  };
}

export function testSandboxView(changes: Partial<SandboxView> = {}): SandboxView {
  return {
    id: testId('sandbox', 'a'),
    name: null,
    state: 'running',
    reason: null,
    reachable: true,
    generation: 1,
    version: 7,
    template: 'host',
    metadata: {},
    metadataVersion: 3,
    env: {},
    limits: { memoryBytes: 1024 ** 3, cpuMillis: 1_000, processes: 100, diskBytes: null },
    expiresAt: null,
    network: { mode: 'none' },
    paused: null,
    onExpiry: 'stop',
    autoResume: false,
    keepCheckpoints: null,
    lease: null,
    nodeId: testId('node', 'a'),
    createdAt: aDay,
    createdBy: testId('key', 'a'),
    userId: null,
    updatedAt: aDay,
    ...changes,
  };
}

export function testExecResult(changes: Partial<ExecResult> = {}): ExecResult {
  return {
    exitCode: 0,
    signal: null,
    timedOut: false,
    killed: false,
    outOfMemory: false,
    stdout: '',
    stderr: '',
    encoding: 'base64',
    stdoutTruncated: false,
    stderrTruncated: false,
    startedAt: aDay,
    durationMs: 1,
    operationId: testId('operation', 'a'),
    generation: 1,
    ...changes,
  };
}

export interface Asked {
  readonly method: string;
  readonly args: readonly unknown[];
}

export class FakeControl implements ControlPort {
  /** Every call but authentication, in order. */
  readonly asked: Asked[] = [];
  readonly callers = new Map<string, Caller>([[goodKey, testCaller()]]);
  readonly views = new Map<string, SandboxView>([[testId('sandbox', 'a'), testSandboxView()]]);
  readonly eventLog: EventView[] = [];
  /** Replaced by a test that wants another answer from exec. */
  onExec: (args: { command: unknown; signal: AbortSignal | undefined }) => Promise<ExecResult> = async () =>
    testExecResult();
  onAcquire: (signal: AbortSignal | undefined) => Promise<void> = async () => {};
  onRenew: () => Promise<void> = async () => {};
  onGet: () => Promise<void> = async () => {};
  isReady = true;
  #woken = Promise.withResolvers<void>();
  #tokens = 0;

  /** The last call of this method. */
  last(method: string): Asked {
    const found = this.asked.findLast((asked) => asked.method === method);
    if (found === undefined) throw new Error(`${method} was not called, but ${this.asked.map((a) => a.method)}`);
    return found;
  }

  addEvent(kind: string, sandboxId: SandboxId | null = null): void {
    this.eventLog.push({ sequence: this.eventLog.length + 1, kind, sandboxId, at: aDay, data: {} });
    this.#woken.resolve();
    this.#woken = Promise.withResolvers<void>();
  }

  #note(method: string, ...args: readonly unknown[]): void {
    this.asked.push({ method, args });
  }

  #view(sandboxId: string): SandboxView {
    const view = this.views.get(sandboxId);
    if (view === undefined) throw new PlatformError('sandbox_not_found', `There is no sandbox ${sandboxId}.`);
    return view;
  }

  #change(sandboxId: string, change: Partial<SandboxView>): SandboxView {
    const view = { ...this.#view(sandboxId), ...change };
    this.views.set(sandboxId, view);
    return view;
  }

  ports: ControlPort['ports'] = fakeControlPorts();
  readonly #branches = fakeControlBranches({
    note: (method, ...args) => this.#note(method, ...args),
    change: (sandboxId, change) => this.#change(sandboxId, change),
  });
  readonly #workspaces = fakeControlWorkspaces({ note: (method, ...args) => this.#note(method, ...args) });
  readonly fakePlans = fakeControlPlans((method, ...args) => this.#note(method, ...args));
  readonly plans = this.fakePlans.plans;
  readonly workspaces = this.#workspaces.workspaces;
  readonly versions = this.#workspaces.versions;
  readonly attachments = this.#workspaces.attachments;
  readonly attachmentChanges = this.#workspaces.attachmentChanges;
  readonly pauses = this.#branches.pauses;
  readonly checkpoints = this.#branches.checkpoints;
  readonly restores = this.#branches.restores;
  readonly forks = this.#branches.forks;
  readonly backups = this.#branches.backups;

  readonly #key = {
    id: testId('key', 'b'),
    teamId: testId('team', 'a'),
    userId: null,
    name: 'made',
    scopes: ['sandboxes:read' as const],
    sandboxId: null,
    createdAt: aDay,
    expiresAt: null,
    revokedAt: null,
  };

  readonly who: ControlPort['who'] = {
    authenticate: async (keyText) => {
      const caller = this.callers.get(keyText);
      if (caller === undefined) throw new PlatformError('unauthenticated', 'There is no such key.');
      return caller;
    },
    actingFor: async () => undefined,
    me: async () => this.#key,
    createKey: async (...args) => {
      this.#note('createKey', ...args);
      return { ...this.#key, key: goodKey };
    },
    listKeys: async () => ({ items: [this.#key] }),
    revokeKey: async (...args) => this.#note('revokeKey', ...args),
    createSandboxToken: async (...args) => {
      this.#note('createSandboxToken', ...args);
      return { ...this.#key, key: goodKey };
    },
    createUser: async (...args) => {
      this.#note('createUser', ...args);
      return { id: testId('user', 'a'), teamId: testId('team', 'a'), name: args[2].name, createdAt: aDay };
    },
    listUsers: async () => ({ items: [] }),
    createTeam: async (...args) => {
      this.#note('createTeam', ...args);
      return { id: testId('team', 'b'), name: args[2].name, diskBytes: args[2].diskBytes, createdAt: aDay };
    },
    updateTeam: async (...args) => {
      this.#note('updateTeam', ...args);
      return { id: args[2], name: 'first', diskBytes: args[3].diskBytes, createdAt: aDay };
    },
    listTeams: async () => ({ items: [{ id: testId('team', 'a'), name: 'first', diskBytes: null, createdAt: aDay }] }),
  };

  readonly sandboxes: ControlPort['sandboxes'] = {
    create: async (caller, conditions, body) => {
      this.#note('create', caller, conditions, body);
      const named = [...this.views.values()].find((view) => body.name !== undefined && view.name === body.name);
      if (named !== undefined && body.ifExists === 'get') return { view: named, created: false };
      if (named !== undefined) throw new PlatformError('name_taken', `The name ${body.name} is taken.`);
      const id = testId('sandbox', `made${this.views.size}`);
      const view = testSandboxView({ id, name: body.name ?? null, metadata: body.metadata ?? {} });
      this.views.set(id, view);
      return { view, created: true };
    },
    list: async (caller, query) => {
      this.#note('list', caller, query);
      const items = [...this.views.values()].filter((view) => (view.name ?? '').startsWith(query.namePrefix ?? ''));
      const from = Number(query.cursor ?? 0);
      const next = from + query.limit;
      return { items: items.slice(from, next), nextCursor: next < items.length ? String(next) : null };
    },
    get: async (_caller, sandboxId) => {
      await this.onGet();
      return this.#view(sandboxId);
    },
    load: async () => ({
      ...{ cpuMicros: 0, memoryBytes: 0, memoryCacheBytes: 0, processes: 0, diskBytes: 0, diskTotalBytes: 0 },
    }),
    update: async (caller, sandboxId, conditions, body) => {
      this.#note('update', caller, sandboxId, conditions, body);
      return this.#change(sandboxId, { version: 8, expiresAt: body.expiresInMs == null ? null : aDay });
    },
    stop: async (caller, sandboxId, conditions, body) => {
      this.#note('stop', caller, sandboxId, conditions, body);
      return this.#change(sandboxId, { state: 'stopped', version: 9 });
    },
    start: async (caller, sandboxId, conditions, body) => {
      this.#note('start', caller, sandboxId, conditions, body);
      const generation = this.#view(sandboxId).generation + 1;
      return this.#change(sandboxId, { state: 'running', generation });
    },
    delete: async (caller, sandboxId, conditions, options) => {
      this.#note('delete', caller, sandboxId, conditions, options);
      this.#view(sandboxId);
      this.views.delete(sandboxId);
    },
  };

  readonly metadata: ControlPort['metadata'] = {
    get: async (_caller, sandboxId) => {
      const { metadata, metadataVersion } = this.#view(sandboxId);
      return { metadata, version: metadataVersion };
    },
    patch: async (caller, sandboxId, conditions, patch) => {
      this.#note('patch', caller, sandboxId, conditions, patch);
      const { metadata, metadataVersion: version } = this.#view(sandboxId);
      if (conditions.expectedVersion !== undefined && conditions.expectedVersion !== version) {
        throw new PlatformError('version_mismatch', `The version is ${version}.`, { details: { version } });
      }
      const merged = Object.entries({ ...metadata, ...patch }).filter(([, value]) => value !== null && value !== '');
      const next = Object.fromEntries(merged) as Record<string, string>;
      this.#change(sandboxId, { metadata: next, metadataVersion: version + 1 });
      return { metadata: next, version: version + 1 };
    },
    history: async (_caller, _sandboxId, query) => {
      this.#note('history', query);
      return { items: [], nextCursor: null, kept: 1_000 };
    },
  };

  readonly execution: ControlPort['execution'] = {
    exec: async (caller, sandboxId, conditions, body, signal) => {
      this.#note('exec', caller, sandboxId, conditions, body);
      const { generation } = this.#view(sandboxId);
      if (conditions.generation !== undefined && conditions.generation !== generation) {
        throw new PlatformError('stale_generation', `The generation is ${generation}.`);
      }
      return await this.onExec({ command: body.command, signal });
    },
  };

  readonly fakeFiles = new FakeControlFiles();
  readonly files: ControlPort['files'] = this.fakeFiles.port;

  /** Processes are tested over control itself, with a fake node; here there are none. */
  readonly processes: ControlPort['processes'] = {
    start: async (caller, sandboxId, conditions, body) =>
      this.#noProcess('startProcess', caller, sandboxId, conditions, body),
    get: async (caller, address) => this.#noProcess('getProcess', caller, address),
    list: async () => ({ items: [], nextCursor: null }),
    output: async (caller, address) => this.#noProcess('readProcessOutput', caller, address),
    follow: (caller, address) => this.#noProcess('readProcessOutput', caller, address),
    writeStdin: async (caller, address) => this.#noProcess('writeProcessStdin', caller, address),
    signal: async (caller, address) => this.#noProcess('signalProcess', caller, address),
    killAll: async () => ({ count: 0 }),
    wait: async (caller, address) => this.#noProcess('waitProcess', caller, address),
    remove: async (caller, address) => this.#noProcess('removeProcess', caller, address),
    probePort: async () => ({ open: false, status: null }),
  };

  #noProcess(name: string, ...given: readonly unknown[]): never {
    this.#note(name, ...given);
    throw new PlatformError('process_not_found', 'This fake has no processes.');
  }

  /** As with processes: there are none here. */
  readonly sessions: ControlPort['sessions'] = {
    create: async (...given) => this.#noSession('createSession', ...given),
    list: async () => ({ items: [] }),
    get: async (...given) => this.#noSession('getSession', ...given),
    exec: async (...given) => this.#noSession('execInSession', ...given),
    setEnv: async (...given) => this.#noSession('setSessionEnv', ...given),
    startProcess: async (...given) => this.#noSession('startSessionProcess', ...given),
    delete: async (...given) => this.#noSession('deleteSession', ...given),
  };

  #noSession(name: string, ...given: readonly unknown[]): never {
    this.#note(name, ...given);
    throw new PlatformError('session_not_found', 'This fake has no sessions.');
  }

  /** As processes. */
  readonly terminals: ControlPort['terminals'] = {
    open: async (caller, sandboxId, conditions, body) =>
      this.#noTerminal('openTerminal', caller, sandboxId, conditions, body),
    get: async (caller, address) => this.#noTerminal('getTerminal', caller, address),
    list: async () => ({ items: [] }),
    resize: async (caller, address) => this.#noTerminal('resizeTerminal', caller, address),
    write: async (caller, address) => this.#noTerminal('writeTerminal', caller, address),
    signal: async (caller, address) => this.#noTerminal('signalTerminal', caller, address),
    destroy: async (...args) => this.#note('destroyTerminal', ...args),
    attach: async (caller, address) => this.#noTerminal('attachTerminal', caller, address),
  };

  readonly templates = noTemplateCalls;

  #noTerminal(name: string, ...given: readonly unknown[]): never {
    this.#note(name, ...given);
    throw new PlatformError('terminal_not_found', 'This fake has no terminals.');
  }

  readonly leases: ControlPort['leases'] = {
    acquire: async (caller, conditions, body, signal) => {
      this.#note('acquire', caller, conditions, body);
      await this.onAcquire(signal);
      this.#tokens++;
      const grants = body.resources.map((resource) => ({ resource, token: this.#tokens }));
      return this.#lease(grants, body.holder, body.ttlMs);
    },
    renew: async (caller, leaseId, conditions, body) => {
      this.#note('renew', caller, leaseId, conditions, body);
      await this.onRenew();
      return this.#lease([], 'renewed', body.ttlMs ?? 30_000);
    },
    release: async (...args) => this.#note('release', ...args),
    hold: (_caller, leaseId, signal) => this.#hold(leaseId, signal),
    list: async (caller, query) => {
      this.#note('listLeases', caller, query);
      return { items: [{ ...this.#lease([{ resource: 'name:a', token: 1 }], 'someone', 30_000), waiting: 2 }] };
    },
  };

  async *#hold(leaseId: string, signal: AbortSignal) {
    if (leaseId !== testId('lease', 'a')) throw new PlatformError('lease_not_found', `There is no lease ${leaseId}.`);
    yield this.#lease([], 'held', 30_000);
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    this.#note('let go', leaseId);
  }

  #lease(grants: { resource: string; token: number }[], holder: string, ttlMs: number) {
    const id = testId('lease', 'a');
    return { id, grants, holder, reason: '', keyId: testId('key', 'a'), ttlMs, grantedAt: aDay, endsInMs: ttlMs };
  }

  readonly events: ControlPort['events'] = {
    list: async (caller, query) => {
      this.#note('listEvents', caller, query);
      if (query.after === 0) throw new PlatformError('output_dropped', 'Events before 1 are gone.');
      const items = this.eventLog.filter((event) => event.sequence > (query.after ?? 0)).slice(0, query.limit);
      return { items, last: this.eventLog.length };
    },
    follow: (_caller, from, signal) => this.#follow(from.after ?? this.eventLog.length, signal),
  };

  async *#follow(after: number, signal: AbortSignal): AsyncGenerator<EventView> {
    const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    for (let position = after; !signal.aborted; ) {
      const woken = this.#woken.promise;
      while (position < this.eventLog.length && !signal.aborted) yield this.eventLog[position++]!;
      if (!signal.aborted) await Promise.race([woken, aborted]);
    }
  }

  readonly webhooks: ControlPort['webhooks'] = {
    create: async (caller, conditions, body) => {
      this.#note('createWebhook', caller, conditions, body);
      return { ...this.#webhook(body.url), secret: 'shh' };
    },
    list: async () => ({ items: [this.#webhook('https://example.test/')] }),
    delete: async (...args) => this.#note('deleteWebhook', ...args),
  };

  #webhook(url: string) {
    return { id: testId('webhook', 'a'), url, kinds: [], createdAt: aDay, cursor: 0, failures: 0, lastError: null };
  }

  readonly operations: ControlPort['operations'] = {
    get: async (caller, reference) => {
      this.#note('getOperation', caller, reference);
      return {
        id: testId('operation', 'a'),
        kind: 'createSandbox',
        subjectId: null,
        state: 'finished',
        startedAt: aDay,
        finishedAt: aDay,
        answer: null,
      };
    },
  };

  readonly reconciler: ControlPort['reconciler'] = {
    run: async (caller, options) => {
      this.#note('reconcile', caller, options);
      return { actions: [], checkpoints: [], quarantined: [], unreachable: [] };
    },
  };

  readiness() {
    return { ready: this.isReady, reasons: this.isReady ? [] : ['Records and nodes are being compared.'] };
  }

  async metrics() {
    const samples = [{ labels: { state: 'a "quoted"\nline' }, value: 2 }];
    return [{ name: 'atoll_sandboxes', help: 'Sandboxes by state.', type: 'gauge' as const, samples }];
  }
}
