/** Tries what sandboxes' networks need, without a change to the machine: in a router's namespace that is thrown away. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { z } from 'zod';
import type { Spawner } from '../spawner.ts';
import { canForward6 } from './forwarding.ts';
import { networkNames, networkPlan } from './plan.ts';
import { hostTable, routerTable } from './rules.ts';

const probePort = 53_053;

/** Refuses with what went wrong. */
export async function tryNetwork(spawner: Spawner): Promise<string> {
  const plan = networkPlan(networkNames(`probe ${process.pid} ${performance.now()}`), { subnet: 0, hasIpv6: true });
  const { router } = plan;
  await spawner.openRouter(router);
  try {
    await spawner.runTool({ tool: 'ip', router, input: 'link add s0 type veth peer name up\nlink delete dev s0\n' });
    const options = { resolverPort: probePort, policies: [], machine: ['127.0.0.1', '::1'], opened: ['lo'] };
    await spawner.runTool({
      tool: 'nft',
      router,
      input: routerTable(plan, options).join('') + hostTable(plan, options),
    });
  } finally {
    await spawner.closeRouter(router);
  }
  return 'Sandboxes can have a network.';
}

export async function tryForwarding6(): Promise<string> {
  if (await canForward6()) return 'Sandboxes reach IPv6 where the machine does.';
  throw new Error('This kernel has no switch for IPv6 an interface: sandboxes reach IPv4 only.');
}

const chainsSchema = z.object({
  nftables: z.array(
    z.looseObject({
      chain: z
        .looseObject({
          table: z.string(),
          name: z.string(),
          hook: z.string().optional(),
          policy: z.string().optional(),
        })
        .optional(),
    }),
  ),
});

/** A firewall that drops what it does not know drops what sandboxes send, whatever our tables say. */
export async function lookAtFirewall(): Promise<string> {
  const { stdout } = await promisify(execFile)('nft', ['-j', 'list', 'chains']);
  const chains = chainsSchema.parse(JSON.parse(stdout)).nftables.flatMap(({ chain }) => chain ?? []);
  const closed = chains.filter(({ hook, policy }) => policy === 'drop' && (hook === 'forward' || hook === 'input'));
  if (closed.length === 0) return 'No firewall of this machine stands in the way of sandboxes.';
  const names = closed.map(({ table, name }) => `${table} ${name}`).join(', ');
  throw new Error(
    `The firewall of this machine drops what it does not know (${names}), and with it what sandboxes send.`,
  );
}
