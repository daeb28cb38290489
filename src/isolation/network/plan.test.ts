import { expect, test } from 'vitest';
import { addressRange, isWithin } from '../../protocol/index.ts';
import { address4Of, networkLink, networkNames, networkPlan, networkSlots, subnetCount, subnetOf } from './plan.ts';

const names = networkNames('/var/lib/atoll/node');

test('names fit the kernel, and two directories have different ones', () => {
  expect(names.uplink).toMatch(/^atoll[0-9a-f]{8}$/);
  expect(names.uplink.length).toBeLessThan(16);
  expect(networkNames('/other').uplink).not.toBe(names.uplink);
  expect(networkNames('/var/lib/atoll/node')).toEqual(names);
});

test('every slot of every subnet has an address of its own, inside the subnet and none of the node’s', () => {
  const seen = new Set<string>();
  for (const subnet of [0, 1, subnetCount - 1]) {
    const plan = networkPlan(names, { subnet, hasIpv6: true });
    expect(isWithin(plan.range4, '198.18.0.0/15')).toBe(true);
    expect(subnetOf(plan.host4)).toBe(subnet);
    for (const slot of [0, 1, 255, 256, networkSlots - 1]) {
      const address = address4Of(plan, slot);
      expect(isWithin(address, plan.range4), address).toBe(true);
      expect([plan.host4, plan.router4]).not.toContain(address);
      seen.add(address);
    }
  }
  expect(seen.size).toBe(15);
  expect(subnetOf('198.17.255.255')).toBeUndefined();
  expect(subnetOf('198.20.0.0')).toBeUndefined();
  expect(subnetOf('fe80::1')).toBeUndefined();
});

test('a link carries its addresses as bytes, and IPv6 only where the machine routes it', () => {
  const plan = networkPlan(names, { subnet: 0, hasIpv6: true });
  const link = networkLink(plan, { slot: 0, alias: 'sbx' });
  expect([...link.address4]).toEqual([198, 18, 0, 16]);
  expect([...link.gateway4]).toEqual([198, 18, 0, 2]);
  expect(link.address6?.[0]).toBe(0xfd);
  expect(link.address6?.[15]).toBe(16);
  expect(addressRange(plan.range6)).toBeDefined();
  expect(networkLink({ ...plan, hasIpv6: false }, { slot: 0, alias: 'sbx' }).address6).toBeUndefined();
});
