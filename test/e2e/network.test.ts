/** What a sandbox reaches by default, and what it never reaches. The internet here is a namespace of the test's own. */
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { reach } from '../support/reach.ts';
import { requires, testWith } from '../support/requires.ts';
import { TestWorld, world } from '../support/test-world.ts';

const needs = [
  requires.root,
  requires.cgroups,
  requires.program('nft'),
  requires.program('ip'),
  requires.program('nsenter'),
];
const test = testWith(...needs);
let machine: TestWorld;
let platform: Platform;
let full: Sandbox;
let none: Sandbox;

beforeAll(async () => {
  if (needs.some((need) => need.missing() !== undefined)) return;
  machine = await TestWorld.open();
  platform = await Platform.start({ world: machine });
  full = await platform.client.sandboxes.create();
  none = await platform.client.sandboxes.create({ network: { mode: 'none' } });
});
afterAll(async () => {
  await platform?.close();
  await machine?.close();
});

describe('the internet', () => {
  test('is reached by address, over IPv4 and IPv6, from an address of the machine', async () => {
    expect(full.network).toEqual({ mode: 'full', allow: [], deny: [] });
    expect(await reach(full, world.web)).toBe(`from ${world.web} to ${world.host[0]}\n`);
    expect(await reach(full, world.web6)).toBe(`from ${world.web6} to ${world.host[2]}\n`);
  });
});
