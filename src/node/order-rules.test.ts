import { expect, test } from 'vitest';
import { createOrder, execOrder, plainSettings } from '../../test/support/node-orders.ts';
import { newId } from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { viewOf } from './node-record.ts';
import {
  admitCheckpoint,
  admitExec,
  decideCreate,
  decideSettings,
  decideStart,
  refuseOlderLife,
} from './order-rules.ts';

const base = createOrder({ generation: 3, version: 10, settings: { leaseToken: 5 } });
const running: NodeRecord = {
  format: 2,
  mark: base.mark,
  spec: base.spec,
  generation: 3,
  version: 10,
  settings: base.settings,
  deadlineBootMs: 0,
  layers: ['host-0'],
  usrLayers: ['/usr'],
  writable: newId('writable'),
  fromCheckpoint: null,
  slot: 0,
  bootId: 'boot',
  life: { kind: 'running' },
};
const ended: NodeRecord = { ...running, life: { kind: 'ended', reason: 'crashed', atMs: 1 } };
const held: NodeRecord = { ...running, settings: { ...base.settings, leaseHeld: true } };

/** What a decision says: its answer, or the code of its refusal. */
function said(decide: () => unknown): unknown {
  try {
    return decide() ?? 'admitted';
  } catch (error) {
    return (error as { code: string }).code;
  }
}

const settings = { ...plainSettings, leaseToken: 5 };
const order = (generation: number, version: number, over: Partial<typeof settings> = {}) => ({
  sandboxId: base.sandboxId,
  generation,
  version,
  settings: { ...settings, ...over },
});

test('creating what is there succeeds again only for the same order', () => {
  expect(said(() => decideCreate(undefined, base))).toBe('do');
  expect(said(() => decideCreate(running, base))).toBe('repeat');
  expect(said(() => decideCreate(ended, base))).toBe('repeat');
  expect(said(() => decideCreate(running, { ...base, generation: 2 }))).toBe('stale_generation');
  expect(said(() => decideCreate(running, { ...base, version: 9 }))).toBe('version_mismatch');
});

const starts: readonly (readonly [NodeRecord, number, number, string])[] = [
  [ended, 2, 11, 'stale_generation'],
  [ended, 3, 10, 'sandbox_wrong_state'],
  [running, 3, 10, 'repeat'],
  [running, 3, 11, 'sandbox_wrong_state'],
  [running, 4, 11, 'sandbox_wrong_state'],
  [ended, 4, 10, 'version_mismatch'],
  [ended, 4, 11, 'do'],
  [ended, 9, 11, 'do'],
];

for (const [record, generation, version, expected] of starts) {
  test(`starting generation ${generation}, version ${version} of a ${record.life.kind} 3/10 is ${expected}`, () => {
    expect(said(() => decideStart(record, order(generation, version)))).toBe(expected);
  });
}

const changes: readonly (readonly [number, number, string])[] = [
  [2, 11, 'stale_generation'],
  [4, 11, 'sandbox_wrong_state'],
  [3, 9, 'version_mismatch'],
  [3, 10, 'repeat'],
  [3, 11, 'do'],
];

for (const [generation, version, expected] of changes) {
  test(`settings for ${generation}/${version} on a sandbox at 3/10 are ${expected}`, () => {
    expect(said(() => decideSettings(running, order(generation, version)))).toBe(expected);
  });
}

test('K20: new settings for a life that has ended are refused; what it has is confirmed again', () => {
  expect(said(() => decideSettings(ended, order(3, 11)))).toBe('sandbox_wrong_state');
  expect(said(() => decideSettings(ended, { ...order(3, 10), settings: base.settings }))).toBe('repeat');
});

test('the same version with other settings is refused, and a token never gets smaller', () => {
  expect(said(() => decideSettings(running, order(3, 10, { metadata: { a: '1' } })))).toBe('version_mismatch');
  expect(said(() => decideSettings(running, order(3, 11, { leaseToken: 4 })))).toBe('invalid_request');
  expect(said(() => decideStart(ended, order(4, 11, { leaseToken: 4 })))).toBe('invalid_request');
});

test('a refusal tells what the node has', () => {
  expect(() => refuseOlderLife(running, order(2, 1))).toThrow(
    expect.objectContaining({ details: { generation: 3, version: 10 } }),
  );
});

const runs: readonly (readonly [string, NodeRecord, number, number | null, string])[] = [
  ['no lease, no token', running, 3, null, 'admitted'],
  ['lease released, its last token', running, 3, 5, 'lease_lost'],
  ['no lease, older token', running, 3, 4, 'lease_lost'],
  ['lease held, no token', held, 3, null, 'lease_held'],
  ['lease held, current token', held, 3, 5, 'admitted'],
  ['lease held, older token', held, 3, 4, 'lease_lost'],
  ['lease held, token from nowhere', held, 3, 6, 'lease_lost'],
  ['earlier life', running, 2, null, 'stale_generation'],
  ['life not begun', running, 4, null, 'sandbox_wrong_state'],
  ['ended life', ended, 3, null, 'sandbox_wrong_state'],
];

for (const [title, record, generation, leaseToken, expected] of runs) {
  test(`a command (${title}) is ${expected}`, () => {
    expect(said(() => admitExec(record, execOrder(viewOf(record), { generation, leaseToken })))).toBe(expected);
  });
}

test('K26: a checkpoint of a life asks for its lease; of one that is over only an earlier token is refused', () => {
  const kept = (record: NodeRecord, generation: number, leaseToken: number | null) =>
    said(() => admitCheckpoint(record, { sandboxId: base.sandboxId, generation, leaseToken }));
  expect([null, 4, 5, 6].map((token) => kept(held, 3, token))).toEqual([
    'lease_held',
    'lease_lost',
    'admitted',
    'lease_lost',
  ]);
  expect([null, 5].map((token) => kept(running, 3, token))).toEqual(['admitted', 'lease_lost']);
  // Leases that were granted or ended since are not known here, whatever the record says.
  for (const record of [ended, { ...held, life: ended.life }]) {
    expect([null, 4, 5, 6].map((token) => kept(record, 3, token))).toEqual([
      'admitted',
      'lease_lost',
      'admitted',
      'admitted',
    ]);
  }
  expect([2, 4].map((generation) => kept(ended, generation, null))).toEqual([
    'stale_generation',
    'sandbox_wrong_state',
  ]);
});
