/** A machine that cannot give sandboxes a network says so, and is as it was. */
import { afterAll, beforeAll, expect, vi } from 'vitest';
import { NetworkRig, networkNeeds } from '../support/network-rig.ts';
import { requires, testWith } from '../support/requires.ts';

const needs = [...networkNeeds, requires.program('setpriv')];
const test = testWith(...needs);
/** Each starts several processes one after the other, which a busy machine takes its time for. */
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
let rig: NetworkRig | undefined;

beforeAll(async () => {
  if (needs.every((need) => need.missing() === undefined)) rig = await NetworkRig.open();
});
afterAll(async () => {
  await rig?.close();
});

test('without the power over networks, full is refused by name with what to do, and none works', async () => {
  const wrap = ['setpriv', '--bounding-set=-net_admin', '--inh-caps=-net_admin', '--'];
  const weak = await NetworkRig.on(rig!.machine, { wrap });
  const before = await weak.machine.census();
  await expect(weak.create({ name: 'with' })).rejects.toMatchObject({
    code: 'network_unavailable',
    message: expect.stringMatching(/Install nftables and iproute2.*network: \{mode: "none"\}/s),
  });
  const sandbox = await weak.create({ name: 'with', network: { mode: 'none' } });
  await expect(sandbox.setNetwork({ mode: 'full' })).rejects.toMatchObject({ code: 'network_unavailable' });
  await sandbox.refresh();
  expect(sandbox.network).toEqual({ mode: 'none' });
  expect((await sandbox.exec('true')).exitCode).toBe(0);
  expect(await weak.machine.census()).toEqual(before);
  await weak.platform.close();
});

test('an operator chooses the default, and a caller may choose otherwise', async () => {
  const closed = await NetworkRig.on(rig!.machine, { settings: { defaultNetwork: { mode: 'none' } } });
  expect((await closed.create()).network).toEqual({ mode: 'none' });
  expect((await closed.create({ network: { mode: 'full' } })).network).toEqual({ mode: 'full', allow: [], deny: [] });
  await closed.platform.close();
});
