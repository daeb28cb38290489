/** Decides whether an order fits what the node has. Pure; changes nothing. */
import { isDeepStrictEqual } from 'node:util';
import {
  type ApplySettingsOrder,
  type CreateSandboxOrder,
  type ExecOrder,
  type LifeOrder,
  type PauseOrder,
  PlatformError,
  type RestoreOrder,
  type StartSandboxOrder,
} from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';

/** `repeat`: what the order asks for is there already. */
export type Decision = 'do' | 'repeat';

export function refuseOlderLife(record: NodeRecord, order: LifeOrder): void {
  if (order.generation >= record.generation) return;
  throw new PlatformError(
    'stale_generation',
    `${order.sandboxId} is in generation ${record.generation}; the order is for ${order.generation}.`,
    { details: numbersOf(record) },
  );
}

export function decideCreate(record: NodeRecord | undefined, order: CreateSandboxOrder): Decision {
  if (record === undefined) return 'do';
  refuseOlderLife(record, order);
  const same =
    order.generation === record.generation &&
    order.version === record.version &&
    order.fromCheckpoint === record.fromCheckpoint &&
    sameData([order.mark, order.spec, order.settings], [record.mark, record.spec, record.settings]);
  if (same) return 'repeat';
  throw mismatch(record, `${order.sandboxId} is there already, made by another order.`);
}

/** Whether there is room for one more, and what it is to be made from. */
export function admitNew(has: { readonly count: number; readonly capacity: number }): void {
  if (has.count < has.capacity) return;
  throw new PlatformError('limit_exceeded', `This node holds ${has.capacity} sandboxes and takes no more.`);
}

export function decideStart(record: NodeRecord, order: StartSandboxOrder): Decision {
  refuseOlderLife(record, order);
  if (order.generation === record.generation) {
    const same = order.version === record.version && sameData(order.settings, record.settings);
    if (record.life.kind === 'running' && same) return 'repeat';
    throw wrongState(record, `Generation ${order.generation} of ${order.sandboxId} was begun before.`);
  }
  if (record.life.kind !== 'ended') throw wrongState(record, `${order.sandboxId} is ${record.life.kind}.`);
  if (order.version <= record.version) throw mismatch(record, `${order.sandboxId} has a newer version.`);
  refuseSmallerToken(record, order);
  return 'do';
}

export function decideSettings(record: NodeRecord, order: ApplySettingsOrder): Decision {
  refuseOlderLife(record, order);
  if (order.generation > record.generation) {
    throw wrongState(record, `${order.sandboxId} has not begun generation ${order.generation}.`);
  }
  if (order.version === record.version && sameData(order.settings, record.settings)) return 'repeat';
  if (order.version <= record.version) {
    throw mismatch(record, `${order.sandboxId} has version ${record.version}; the order brings ${order.version}.`);
  }
  // Its end may not have reached control yet: an extension that is too late must not seem to have been in time.
  if (record.life.kind === 'ended') throw wrongState(record, `${order.sandboxId} has ended.`);
  refuseSmallerToken(record, order);
  return 'do';
}

/** Whatever it does now, its life ends and the next begins; the same order again finds it running. */
export function decideRestore(record: NodeRecord, order: RestoreOrder): Decision {
  refuseOlderLife(record, order);
  if (order.generation === record.generation) {
    const same = order.version === record.version && sameData(order.settings, record.settings);
    if (record.life.kind === 'running' && same) return 'repeat';
    throw wrongState(record, `Generation ${order.generation} of ${order.sandboxId} was begun before.`);
  }
  if (order.version <= record.version) throw mismatch(record, `${order.sandboxId} has a newer version.`);
  refuseSmallerToken(record, order);
  return 'do';
}

/** A pause of what its deadline has paused takes the new settings; so does a resume of what is being used. */
export function decideChangeOfPace(record: NodeRecord, order: PauseOrder, wanted: 'paused' | 'running'): Decision {
  const decision = decideSettings(record, order);
  if (decision === 'repeat' && record.life.kind === 'ended') {
    throw wrongState(record, `${order.sandboxId} has ended.`);
  }
  return decision === 'repeat' && record.life.kind === wanted ? 'repeat' : 'do';
}

/** Whether what runs now may be looked at. */
export function admitLook(record: NodeRecord, order: LifeOrder): void {
  refuseOlderLife(record, order);
  if (order.generation > record.generation || record.life.kind === 'ended') {
    throw wrongState(record, `${order.sandboxId} does not run generation ${order.generation}.`);
  }
  if (record.life.kind === 'paused') {
    throw new PlatformError('sandbox_paused', `${order.sandboxId} is paused; nothing was done.`);
  }
}

/** Whether a command may start now, or a file be changed. */
export function admitExec(record: NodeRecord, order: LifeOrder & Pick<ExecOrder, 'leaseToken'>): void {
  admitLook(record, order);
  admitLease(record, order);
}

export function admitLease(record: NodeRecord, order: Pick<ExecOrder, 'leaseToken'>): void {
  const { leaseToken, leaseHeld } = record.settings;
  if (order.leaseToken === null && leaseHeld) {
    throw new PlatformError('lease_held', 'Somebody holds a lease on this sandbox; nothing ran.');
  }
  if (order.leaseToken !== null && (!leaseHeld || order.leaseToken !== leaseToken)) {
    throw new PlatformError('lease_lost', 'The lease token is not the current one; nothing ran.');
  }
}

/**
 * Whether files may be kept as a checkpoint. Leases on a sandbox that does not run are granted and ended without its node, so of a life
 * that is over the node knows no more than that tokens do not get smaller.
 */
export function admitCheckpoint(record: NodeRecord, order: LifeOrder & Pick<ExecOrder, 'leaseToken'>): void {
  refuseOlderLife(record, order);
  if (order.generation > record.generation) {
    throw new PlatformError('sandbox_wrong_state', `Generation ${order.generation} has not begun.`);
  }
  if (record.life.kind !== 'ended') admitLease(record, order);
  else if (order.leaseToken !== null && order.leaseToken < record.settings.leaseToken) {
    throw new PlatformError('lease_lost', 'The lease token is an earlier one; nothing was kept.');
  }
}

/** Equal as JSON: one side may have been on disk or on the wire. */
function sameData(a: unknown, b: unknown): boolean {
  return isDeepStrictEqual(JSON.parse(JSON.stringify(a)), JSON.parse(JSON.stringify(b)));
}

function refuseSmallerToken(record: NodeRecord, order: StartSandboxOrder): void {
  if (order.settings.leaseToken >= record.settings.leaseToken) return;
  throw new PlatformError('invalid_request', 'A lease token never gets smaller.', { details: numbersOf(record) });
}

function wrongState(record: NodeRecord, message: string): PlatformError {
  const state = record.life.kind === 'ended' ? 'stopped' : record.life.kind;
  return new PlatformError('sandbox_wrong_state', message, { details: { ...numbersOf(record), state } });
}

function mismatch(record: NodeRecord, message: string): PlatformError {
  return new PlatformError('version_mismatch', message, { details: numbersOf(record) });
}

function numbersOf(record: NodeRecord): { generation: number; version: number } {
  return { generation: record.generation, version: record.version };
}
