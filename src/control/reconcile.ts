/**
 * Reconcile: what should be (records) and what is (what nodes report), compared. A pure function: the same input gives the
 * same list of actions, in the same order, each with its reason. Nothing here is carried out.
 *
 *  - A node that did not report makes nothing gone: its sandboxes are left alone.
 *  - Nothing that runs is ever killed for want of a record: it is adopted, or listed.
 *  - A transition is left to whoever works on it until its deadline has passed, except where the node shows its end.
 */
import { isDeepStrictEqual } from 'node:util';
import type { NodeId, NodeSandbox, QuarantinedSandbox, SandboxId, StopReason } from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import { transitionDeadline } from './lifecycle.ts';
import { automaticOf, settingsOf } from './sandbox-records.ts';

export interface NodeReport {
  readonly nodeId: NodeId;
  /** undefined: out of reach. */
  readonly sandboxes: readonly NodeSandbox[] | undefined;
  readonly quarantined: readonly QuarantinedSandbox[];
}

export interface ReconcileInput {
  readonly records: readonly SandboxRecord[];
  readonly reports: readonly NodeReport[];
  readonly teams: ReadonlySet<string>;
  /** Sandboxes whose lease somebody holds. */
  readonly leased: ReadonlySet<string>;
  /** Hidden sandboxes that this server works with. */
  readonly hidden: ReadonlySet<string>;
  readonly nowMs: number;
  readonly youngMs: number;
}

export type ActionKind =
  /** The node has it complete: it is running. */
  | 'confirm'
  /** It was never made and nobody works on it any more. */
  | 'abandon'
  /** Its life has ended on the node. */
  | 'end'
  /** The node does not have it. */
  | 'lose'
  /** A stop that was begun and not finished. */
  | 'finish-stop'
  /** A pause, resume or restore that was begun and not finished. */
  | 'finish-pause'
  | 'finish-resume'
  | 'finish-restore'
  /** The node has paused it, as was begun or because its deadline came. */
  | 'note-pause'
  | 'finish-delete'
  /** The node has newer settings than the record: we died between the two. Or a later life: the store was put back. */
  | 'take-settings'
  /** The node has older settings than the record. */
  | 'give-settings'
  /** The record says that a lease is held, and nobody holds it. */
  | 'release-lease'
  /** It runs, carries our mark, and has no record. */
  | 'adopt'
  /** It was taken for lost, and the node runs it. */
  | 'find'
  /** It is recorded as stopped, and the node runs it: an order for it came late. */
  | 'stop-on-node'
  /** It failed to be made, and the node has something of it after all. */
  | 'remove'
  /** It was made for one step of a server's own work, which nobody does any more. */
  | 'discard'
  /** It has no record and none can be made: listed, never touched. */
  | 'quarantine';

export interface Action {
  readonly kind: ActionKind;
  readonly sandboxId: SandboxId;
  readonly nodeId: NodeId;
  readonly reason: string;
  /** For `end` and `lose`: what to record. */
  readonly stopReason?: StopReason;
}

export function reconcile(input: ReconcileInput): Action[] {
  const actions: Action[] = [];
  const known = new Map(input.records.map((record) => [record.id, record]));
  for (const report of input.reports) {
    if (report.sandboxes === undefined) continue;
    const present = new Map(report.sandboxes.map((sandbox) => [sandbox.mark.sandboxId, sandbox]));
    for (const record of input.records) {
      if (record.nodeId !== report.nodeId) continue;
      actions.push(...compare(record, present.get(record.id), input));
    }
    for (const sandbox of report.sandboxes) {
      if (!known.has(sandbox.mark.sandboxId)) actions.push(...unrecorded(sandbox, report.nodeId, input));
    }
  }
  return actions.sort(
    (a, b) => compareText(a.sandboxId, b.sandboxId) || compareText(a.kind, b.kind) || compareText(a.nodeId, b.nodeId),
  );
}

/** What one record and its node say about each other. */
export function compare(
  record: SandboxRecord,
  sandbox: NodeSandbox | undefined,
  input: Omit<ReconcileInput, 'records' | 'reports'>,
): Action[] {
  const act = (kind: ActionKind, reason: string, stopReason?: StopReason): Action[] => [
    { kind, sandboxId: record.id, nodeId: record.nodeId, reason, ...(stopReason && { stopReason }) },
  ];
  const isOverdue = (transitionDeadline(record.state) ?? Number.POSITIVE_INFINITY) <= input.nowMs;
  const isThisLife = sandbox?.generation === record.generation;
  if (sandbox !== undefined && sandbox.generation > record.generation) {
    return act('take-settings', `The node has generation ${sandbox.generation}, the record ${record.generation}.`);
  }
  switch (record.state.kind) {
    case 'creating':
    case 'starting': {
      if (sandbox !== undefined && isThisLife) {
        if (sandbox.life.kind !== 'ended') return act('confirm', 'The node has it complete.');
        return act('end', 'It ended before it was confirmed.', sandbox.life.reason);
      }
      return isOverdue ? act('abandon', 'It was not made in time, and the node does not have it.') : [];
    }
    case 'running':
      if (sandbox === undefined) {
        const isYoung = record.updatedAtMs > input.nowMs - input.youngMs;
        return isYoung ? [] : act('lose', 'The node does not have it.', 'lost');
      }
      if (!isThisLife) return act('lose', `The node has generation ${sandbox.generation}.`, 'lost');
      if (sandbox.life.kind === 'ended') return act('end', 'Its life has ended on the node.', sandbox.life.reason);
      if (sandbox.life.kind === 'paused') return act('note-pause', 'The node has paused it.');
      return compareSettings(record, sandbox, input, act);
    case 'pausing':
    case 'paused':
    case 'resuming':
    case 'restoring':
      return comparePaused(record, sandbox, input, act);
    case 'stopping':
      if (sandbox === undefined || (isThisLife && sandbox.life.kind === 'ended')) {
        return act('end', 'No process of it is left.', record.state.reason);
      }
      return act('finish-stop', 'A stop was begun and not finished.');
    case 'deleting':
      return act('finish-delete', 'A deletion was begun and not finished.');
    case 'stopped':
      if (sandbox !== undefined && isThisLife && sandbox.life.kind !== 'ended') {
        if (record.state.reason === 'lost') return act('find', 'It was taken for lost, and the node runs it.');
        return act('stop-on-node', 'It is recorded as stopped, and the node runs it.');
      }
      return unheld(record, input, act);
    case 'failed':
      return sandbox === undefined ? [] : act('remove', 'It failed to be made, and the node has something of it.');
  }
}

type Act = (kind: ActionKind, reason: string, stopReason?: StopReason) => Action[];

/** Of a record that is paused, on the way there or back, or being restored. */
function comparePaused(
  record: SandboxRecord,
  sandbox: NodeSandbox | undefined,
  input: Pick<ReconcileInput, 'leased' | 'nowMs' | 'youngMs'>,
  act: Act,
): Action[] {
  const { state } = record;
  if (sandbox === undefined) {
    const isYoung = state.kind === 'paused' && record.updatedAtMs > input.nowMs - input.youngMs;
    return isYoung ? [] : act('lose', 'The node does not have it.', 'lost');
  }
  const { life } = sandbox;
  const isThisLife = sandbox.generation === record.generation;
  switch (state.kind) {
    case 'pausing':
      if (!isThisLife) return act('lose', `The node has generation ${sandbox.generation}.`, 'lost');
      if (life.kind === 'ended') {
        const isAsked = state.mode === 'files' && life.reason === 'requested';
        if (isAsked) return act('note-pause', 'No process of it is left.');
        return act('end', 'Its life has ended on the node.', life.reason);
      }
      if (life.kind === 'paused' && state.mode === 'memory') return act('note-pause', 'The node has paused it.');
      return act('finish-pause', 'A pause was begun and not finished.');
    case 'paused':
      if (state.mode === 'files') {
        if (isThisLife && life.kind !== 'ended') return act('stop-on-node', 'No process of it is to be left.');
        return unheld(record, input, act);
      }
      if (!isThisLife) return act('lose', `The node has generation ${sandbox.generation}.`, 'lost');
      if (life.kind === 'ended') return act('end', 'Its life has ended on the node.', life.reason);
      if (life.kind === 'running' && sandbox.version <= record.version) {
        return act('find', 'It is recorded as paused, and the node runs it.');
      }
      return compareSettings(record, sandbox, input, act);
    case 'resuming':
      if (!isThisLife) return act('finish-resume', 'A resume was begun and not finished.');
      if (life.kind === 'ended') return act('end', 'Its life has ended on the node.', life.reason);
      if (life.kind === 'running') return act('confirm', 'The node runs it.');
      return act('finish-resume', 'A resume was begun and not finished.');
    default:
      if (!isThisLife) return act('finish-restore', 'A restore was begun and not finished.');
      if (life.kind === 'ended') return act('end', 'It ended before it was confirmed.', life.reason);
      return act('confirm', 'The node runs the restored life.');
  }
}

function unheld(record: SandboxRecord, input: Pick<ReconcileInput, 'leased'>, act: Act): Action[] {
  return record.leaseHeld && !input.leased.has(record.id) ? act('release-lease', 'Nobody holds the lease.') : [];
}

function compareSettings(
  record: SandboxRecord,
  sandbox: NodeSandbox,
  input: Pick<ReconcileInput, 'leased'>,
  act: Act,
): Action[] {
  if (sandbox.version > record.version) {
    return act('take-settings', `The node has version ${sandbox.version}, the record ${record.version}.`);
  }
  const { settings } = sandbox;
  const isSame =
    settings.metadataVersion === record.metadataVersion &&
    settings.expiresAtMs === record.expiresAtMs &&
    settings.leaseToken === record.leaseToken &&
    settings.leaseHeld === record.leaseHeld &&
    JSON.stringify(settings.network) === JSON.stringify(record.network) &&
    isDeepStrictEqual(automaticOf(settings), automaticOf(settingsOf(record, settings.change))) &&
    sameMap(settings.metadata, record.metadata);
  if (!isSame) return act('give-settings', `The node has version ${sandbox.version}, the record ${record.version}.`);
  return unheld(record, input, act);
}

function unrecorded(sandbox: NodeSandbox, nodeId: NodeId, input: ReconcileInput): Action[] {
  const { mark } = sandbox;
  if (mark.isHidden) {
    if (input.hidden.has(mark.sandboxId)) return [];
    const reason = 'It was made for one step of a server that is over.';
    return [{ kind: 'discard', sandboxId: mark.sandboxId, nodeId, reason }];
  }
  const isOurs = input.teams.has(mark.teamId);
  const reason = isOurs
    ? 'It carries our mark and has no record.'
    : `It has no record, and its team ${mark.teamId} is not known.`;
  return [{ kind: isOurs ? 'adopt' : 'quarantine', sandboxId: mark.sandboxId, nodeId, reason }];
}

function sameMap(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && a[key] === b[key]);
}

/** By code unit: the same everywhere, whatever the locale. */
function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
