import fc from 'fast-check';
import { expect, test } from 'vitest';
import { sandboxRecord } from '../../test/support/records.ts';
import { type NodeSandbox, newId, type SandboxId, type SandboxState, type TeamId } from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import { type Action, type ReconcileInput, reconcile } from './reconcile.ts';
import { settingsOf } from './sandbox-records.ts';

const nodeId = newId('node');
const teamId: TeamId = newId('team');
const ids = Array.from({ length: 4 }, () => newId('sandbox')).sort();
const nowMs = 1_900_000_000_000;
const change = { by: 'key', atMs: 1, operationId: null };

function nodeSandbox(record: SandboxRecord, given: Partial<NodeSandbox> = {}): NodeSandbox {
  return {
    mark: { sandboxId: record.id, teamId: record.teamId, name: null, createdAtMs: 1, createdBy: record.createdBy },
    spec: record.spec,
    generation: record.generation,
    version: record.version,
    settings: settingsOf(record, change),
    life: { kind: 'running' },
    ...given,
  };
}

function inputOf(given: Partial<ReconcileInput>): ReconcileInput {
  return {
    records: [],
    reports: [],
    teams: new Set([teamId]),
    leased: new Set(),
    hidden: new Set(),
    nowMs,
    youngMs: 60_000,
    ...given,
  };
}

function actionsFor(record: SandboxRecord, sandbox: NodeSandbox | undefined, given: Partial<ReconcileInput> = {}) {
  const report = { nodeId, sandboxes: sandbox === undefined ? [] : [sandbox], quarantined: [] };
  return reconcile(inputOf({ records: [record], reports: [report], ...given })).map(
    ({ kind, stopReason }) => stopReason ?? kind,
  );
}

const old = { nodeId, teamId, updatedAtMs: nowMs - 3600_000 };
const future = nowMs + 1_000;
const record = (state: SandboxState, given: Partial<SandboxRecord> = {}) => sandboxRecord({ ...old, state, ...given });

test('K43: what one record and its node make of each other', () => {
  const creating = record({ kind: 'creating', untilMs: future });
  expect(actionsFor(creating, undefined)).toEqual([]);
  expect(actionsFor(creating, nodeSandbox(creating))).toEqual(['confirm']);
  const ended = { life: { kind: 'ended', reason: 'crashed', atMs: 1 } } as const;
  expect(actionsFor(creating, nodeSandbox(creating, ended))).toEqual(['crashed']);
  expect(actionsFor(record({ kind: 'creating', untilMs: nowMs }), undefined)).toEqual(['abandon']);

  const running = record({ kind: 'running' }, { version: 5, generation: 2 });
  expect(actionsFor(running, nodeSandbox(running))).toEqual([]);
  expect(actionsFor(running, nodeSandbox(running, ended))).toEqual(['crashed']);
  expect(actionsFor(running, nodeSandbox(running, { version: 6 }))).toEqual(['take-settings']);
  const other = { settings: { ...settingsOf(running, change), metadata: { a: '1' } } };
  expect(actionsFor(running, nodeSandbox(running, other))).toEqual(['give-settings']);
  expect(actionsFor(running, nodeSandbox(running, { generation: 1 }))).toEqual(['lost']);

  const stopping = record({ kind: 'stopping', reason: 'expired', untilMs: future });
  expect(actionsFor(stopping, nodeSandbox(stopping))).toEqual(['finish-stop']);
  expect(actionsFor(stopping, nodeSandbox(stopping, ended))).toEqual(['expired']);
  expect(actionsFor(stopping, undefined)).toEqual(['expired']);
  expect(actionsFor(record({ kind: 'deleting', untilMs: future }), undefined)).toEqual(['finish-delete']);

  const stopped = record({ kind: 'stopped', reason: 'requested', atMs: 1 });
  expect(actionsFor(stopped, nodeSandbox(stopped, ended))).toEqual([]);
  expect(actionsFor(stopped, nodeSandbox(stopped))).toEqual(['stop-on-node']);
  const lost = record({ kind: 'stopped', reason: 'lost', atMs: 1 });
  expect(actionsFor(lost, nodeSandbox(lost))).toEqual(['find']);
  expect(actionsFor(lost, undefined)).toEqual([]);
  const failed = record({ kind: 'failed', why: 'no room' });
  expect(actionsFor(failed, undefined)).toEqual([]);
  expect(actionsFor(failed, nodeSandbox(failed))).toEqual(['remove']);
});

test('K43: a lease that is recorded and that nobody holds is released; one that somebody holds is not', () => {
  for (const state of [{ kind: 'running' }, { kind: 'stopped', reason: 'requested', atMs: 1 }] as const) {
    const leased = record(state, { leaseHeld: true, leaseToken: 3 });
    const sandbox = state.kind === 'running' ? nodeSandbox(leased) : undefined;
    expect(actionsFor(leased, sandbox)).toEqual(['release-lease']);
    expect(actionsFor(leased, sandbox, { leased: new Set([leased.id]) })).toEqual([]);
  }
});

test('a hidden sandbox is let go by the server that made it, and by nobody while that works with it', () => {
  const seen = nodeSandbox(record({ kind: 'running' }));
  const hidden = { ...seen, mark: { ...seen.mark, isHidden: true as const } };
  const { sandboxId } = hidden.mark;
  const reports = [{ nodeId, sandboxes: [hidden], quarantined: [] }];
  expect(reconcile(inputOf({ reports })).map(({ kind }) => kind)).toEqual(['discard']);
  expect(reconcile(inputOf({ reports, hidden: new Set([sandboxId]) }))).toEqual([]);
  expect(reconcile(inputOf({ reports, teams: new Set() })).map(({ kind }) => kind)).toEqual(['discard']);
});

test('K44: without a record, ours is adopted and the rest quarantined; neither is ever stopped', () => {
  const ours = nodeSandbox(record({ kind: 'running' }));
  const theirs = nodeSandbox(record({ kind: 'running' }, { teamId: newId('team') }));
  const report = { nodeId, sandboxes: [ours, theirs], quarantined: [] };
  const actions = reconcile(inputOf({ reports: [report] }));
  const kinds = Object.fromEntries(actions.map(({ sandboxId, kind }) => [sandboxId, kind]));
  expect(kinds).toEqual({ [ours.mark.sandboxId]: 'adopt', [theirs.mark.sandboxId]: 'quarantine' });
});

test('K45: a record without a sandbox is lost when it is not young; a node that does not report loses nothing', () => {
  const running = record({ kind: 'running' });
  expect(actionsFor(running, undefined)).toEqual(['lost']);
  expect(actionsFor({ ...running, updatedAtMs: nowMs - 59_999 }, undefined)).toEqual([]);
  const silent = { nodeId, sandboxes: undefined, quarantined: [] };
  expect(reconcile(inputOf({ records: [running], reports: [silent] }))).toEqual([]);
  const another = { nodeId: newId('node'), sandboxes: [], quarantined: [] };
  expect(reconcile(inputOf({ records: [running], reports: [another] }))).toEqual([]);
});

// ---- for any input

const beforeRestore = { state: { kind: 'running' }, generation: 1, expiresAtMs: null } as const;
function pausedIn(mode: 'memory' | 'files') {
  return { kind: 'paused', mode, reason: 'requested', atMs: 1, leftMs: null } as const;
}
const stateOf = fc.oneof(
  fc.constant<SandboxState>({ kind: 'running' }),
  fc.constantFrom<SandboxState>(
    { kind: 'creating', untilMs: nowMs - 1 },
    { kind: 'creating', untilMs: future },
    { kind: 'starting', previous: 'crashed', untilMs: nowMs - 1 },
    { kind: 'starting', previous: 'crashed', untilMs: future },
    { kind: 'stopping', reason: 'requested', untilMs: nowMs - 1 },
    { kind: 'stopping', reason: 'requested', untilMs: future },
    { kind: 'stopped', reason: 'requested', atMs: 1 },
    { kind: 'stopped', reason: 'lost', atMs: 1 },
    { kind: 'pausing', mode: 'memory', expiresAtMs: null, untilMs: future },
    { kind: 'pausing', mode: 'files', expiresAtMs: null, untilMs: nowMs - 1 },
    pausedIn('memory'),
    pausedIn('files'),
    { kind: 'resuming', paused: pausedIn('memory'), untilMs: future },
    { kind: 'resuming', paused: pausedIn('files'), untilMs: nowMs - 1 },
    { kind: 'restoring', checkpointId: newId('checkpoint'), before: beforeRestore, untilMs: future },
    { kind: 'deleting', untilMs: nowMs - 1 },
    { kind: 'failed', why: 'no room' },
  ),
);
const side = fc.record({
  generation: fc.integer({ min: 1, max: 2 }),
  version: fc.integer({ min: 1, max: 3 }),
  value: fc.constantFrom('a', 'b'),
  leaseHeld: fc.boolean(),
});
const pair = fc.record({
  record: fc.option(fc.record({ state: stateOf, isYoung: fc.boolean(), side })),
  node: fc.option(fc.record({ lifeKind: fc.constantFrom('running', 'paused', 'ended'), isOurs: fc.boolean(), side })),
  isLeased: fc.boolean(),
});
const lives = {
  running: { kind: 'running' },
  paused: { kind: 'paused', atMs: 1 },
  ended: { kind: 'ended', reason: 'crashed', atMs: 1 },
} as const;
type Side = { generation: number; version: number; value: string; leaseHeld: boolean };

function build(pairs: readonly (typeof pair extends fc.Arbitrary<infer Value> ? Value : never)[]): ReconcileInput {
  const strangers = newId('team');
  const settle = ({ value, leaseHeld }: Side) => ({ metadata: { key: value }, leaseHeld });
  const records: SandboxRecord[] = [];
  const sandboxes: NodeSandbox[] = [];
  for (const [index, one] of pairs.entries()) {
    const id = ids[index]!;
    const base = sandboxRecord({ ...old, id });
    if (one.record !== null) {
      const { state, isYoung, side: ours } = one.record;
      const { generation, version } = ours;
      const updatedAtMs = isYoung ? nowMs : old.updatedAtMs;
      records.push({ ...base, ...settle(ours), generation, version, state, updatedAtMs });
    }
    if (one.node !== null) {
      const { lifeKind, isOurs, side: theirs } = one.node;
      const { generation, version } = theirs;
      const like = { ...base, ...settle(theirs), generation, version, teamId: isOurs ? teamId : strangers };
      const life = lives[lifeKind];
      sandboxes.push(nodeSandbox(like, { life }));
    }
  }
  const leased = new Set(pairs.flatMap((one, index) => (one.isLeased ? [ids[index]! as string] : [])));
  return inputOf({ records, reports: [{ nodeId, sandboxes, quarantined: [] }], leased });
}

/** What an action does, in a world where nothing goes wrong. */
function apply(input: ReconcileInput, action: Action): ReconcileInput {
  const id = action.sandboxId;
  const records = new Map(input.records.map((one) => [one.id, one]));
  const sandboxes = new Map(input.reports[0]!.sandboxes!.map((one) => [one.mark.sandboxId, one]));
  const own = records.get(id);
  const its = sandboxes.get(id);
  const put = (next: Partial<SandboxRecord>) =>
    records.set(id, { ...own!, ...next, version: own!.version + 1, updatedAtMs: nowMs });
  const apply = (next: Partial<SandboxRecord>) => {
    const updated = { ...own!, ...next, version: own!.version + 1, updatedAtMs: nowMs };
    records.set(id, updated);
    sandboxes.set(id, { ...its!, version: updated.version, settings: settingsOf(updated, change) });
  };
  const endOnNode = () =>
    its && sandboxes.set(id, { ...its, life: { kind: 'ended', reason: 'requested', atMs: nowMs } });
  const beginOnNode = () => {
    apply({ state: { kind: 'running' } });
    sandboxes.set(id, { ...sandboxes.get(id)!, generation: own!.generation, life: { kind: 'running' } });
  };
  const effects: Record<Action['kind'], () => unknown> = {
    confirm: () => put({ state: { kind: 'running' } }),
    abandon: () => {
      const isNew = own!.state.kind === 'creating';
      if (isNew) sandboxes.delete(id);
      put({ state: isNew ? { kind: 'failed', why: 'late' } : { kind: 'stopped', reason: 'crashed', atMs: 1 } });
    },
    end: () => put({ state: { kind: 'stopped', reason: action.stopReason!, atMs: 1 } }),
    lose: () => put({ state: { kind: 'stopped', reason: action.stopReason!, atMs: 1 } }),
    'finish-stop': () => {
      endOnNode();
      put({ state: { kind: 'stopped', reason: 'requested', atMs: 1 } });
    },
    'finish-pause': () => {
      const { mode } = own!.state as Extract<SandboxState, { kind: 'pausing' }>;
      if (mode === 'files') endOnNode();
      else sandboxes.set(id, { ...its!, life: { kind: 'paused', atMs: 1 } });
      put({ state: { kind: 'paused', mode, reason: 'requested', atMs: 1, leftMs: null } });
    },
    'note-pause': () => {
      const mode = own!.state.kind === 'pausing' ? own!.state.mode : 'memory';
      put({ state: { kind: 'paused', mode, reason: 'requested', atMs: 1, leftMs: null } });
    },
    'finish-resume': () => beginOnNode(),
    'finish-restore': () => beginOnNode(),
    'finish-delete': () => records.delete(id) && sandboxes.delete(id),
    'take-settings': () => {
      const { metadata, leaseHeld } = its!.settings;
      const { generation } = its!;
      const wasStopped = own!.state.kind === 'stopped' || own!.state.kind === 'stopping';
      const isLater = generation > own!.generation && its!.life.kind !== 'ended';
      const isResumed = own!.state.kind === 'paused' && its!.life.kind === 'running';
      const state: SandboxState = isResumed || (wasStopped && isLater) ? { kind: 'running' } : own!.state;
      const version = Math.max(its!.version, own!.version + 1);
      records.set(id, { ...own!, state, generation, metadata, leaseHeld, version, updatedAtMs: nowMs });
    },
    'give-settings': () => apply({}),
    'release-lease': () =>
      own!.state.kind === 'running' || (own!.state.kind === 'paused' && own!.state.mode === 'memory')
        ? apply({ leaseHeld: false })
        : put({ leaseHeld: false }),
    adopt: () => {
      const { settings, generation, version, spec, life, mark } = its!;
      const state: SandboxState =
        life.kind !== 'ended' ? { kind: 'running' } : { kind: 'stopped', reason: life.reason, atMs: life.atMs };
      const { metadata, leaseHeld, leaseToken, metadataVersion, expiresAtMs } = settings;
      const rebuilt = { generation, version, spec, metadata, leaseHeld, leaseToken, metadataVersion, expiresAtMs };
      records.set(id, sandboxRecord({ ...old, ...rebuilt, id, state, teamId: mark.teamId as TeamId }));
    },
    find: () => put({ state: { kind: 'running' } }),
    'stop-on-node': endOnNode,
    remove: () => sandboxes.delete(id),
    discard: () => sandboxes.delete(id),
    quarantine: () => {},
  };
  effects[action.kind]();
  const reports = [{ nodeId, sandboxes: [...sandboxes.values()], quarantined: [] }];
  return { ...input, records: [...records.values()], reports };
}

const worlds = fc.array(pair, { minLength: 1, maxLength: 4 });

test('K43: the same input gives the same bytes, in whatever order records and reports come', () => {
  fc.assert(
    fc.property(worlds, (pairs) => {
      const input = build(pairs);
      const mirrored = {
        ...input,
        records: [...input.records].reverse(),
        reports: input.reports.map((report) => ({ ...report, sandboxes: [...report.sandboxes!].reverse() })),
      };
      const frozen = JSON.stringify(input);
      expect(JSON.stringify(reconcile(mirrored))).toBe(JSON.stringify(reconcile(input)));
      expect(JSON.stringify(input)).toBe(frozen);
      for (const { reason } of reconcile(input)) expect(reason).not.toBe('');
    }),
    { numRuns: 1_000 },
  );
});

test('K43: what it asks for, done, leaves nothing to ask for but to list what is not ours', () => {
  fc.assert(
    fc.property(worlds, (pairs) => {
      let input = build(pairs);
      for (let round = 0; round < 6; round++)
        for (const action of firsts(reconcile(input))) input = apply(input, action);
      expect(reconcile(input).filter((action) => action.kind !== 'quarantine')).toEqual([]);
    }),
    { numRuns: 1_000 },
  );
});

test('K44: K45: nothing that runs is stopped or removed for want of a record, and nothing while its node is silent', () => {
  fc.assert(
    fc.property(worlds, (pairs) => {
      const input = build(pairs);
      const recorded = new Set(input.records.map((one) => one.id));
      for (const { kind, sandboxId } of reconcile(input)) {
        if (!recorded.has(sandboxId)) expect(['adopt', 'quarantine']).toContain(kind);
      }
      const silent = [{ nodeId, sandboxes: undefined, quarantined: [] }];
      expect(reconcile({ ...input, reports: silent })).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

/** One per sandbox: each is decided anew after the one before it. */
function firsts(actions: readonly Action[]): Action[] {
  return [...new Map([...actions].reverse().map((action): [SandboxId, Action] => [action.sandboxId, action])).values()];
}
