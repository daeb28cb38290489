import { expect, test } from 'vitest';
import { createOrder } from '../../../test/support/node-orders.ts';
import { newId } from '../../protocol/index.ts';
import type { NodeRecord } from '../node-record.ts';
import { withTemplate } from './template-orders.ts';

const { mark, spec, settings } = createOrder({});
const plain: NodeRecord = {
  ...{ format: 2, mark, spec: { ...spec, env: { B: 'sandbox' } }, settings, generation: 1, version: 1 },
  ...{ deadlineBootMs: 0, layers: ['x'], usrLayers: [], slot: 1, bootId: 'boot', life: { kind: 'running' } },
  ...{ writable: newId('writable'), fromCheckpoint: null },
};
const template = {
  id: newId('template'),
  env: { A: 'template', B: 'template' },
  workdir: '/srv',
  user: 'ann',
  start: null,
};
const record: NodeRecord = { ...plain, template };
const silent = { cwd: null, env: {}, user: null };

test('without a template of its own a sandbox gives nothing to a command', () => {
  expect(withTemplate(plain, silent)).toBe(silent);
});

test('what a caller leaves open is what the template says, except where the sandbox says otherwise', () => {
  expect(withTemplate(record, silent)).toEqual({ cwd: '/srv', user: 'ann', env: { A: 'template' } });
});

test('what a caller says counts, and unsets', () => {
  const order = { cwd: '/tmp', user: 'root', env: { A: null, C: 'call' } };
  expect(withTemplate(record, order)).toEqual(order);
  expect(withTemplate(record, { ...silent, cwd: 'inner' }).cwd).toBe('/srv/inner');
});
