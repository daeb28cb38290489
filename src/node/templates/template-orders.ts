/** What the template of a sandbox gives to a command that says nothing else: user, directory and environment. */
import type { NodeRecord } from '../node-record.ts';

interface CommandOrder {
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
}

/** The later wins: template, sandbox, call. A relative directory begins in that of the template. */
export function withTemplate<Order extends CommandOrder>(record: NodeRecord, order: Order): Order {
  const { template, spec } = record;
  if (template === undefined) return order;
  const { workdir } = template;
  const cwd =
    order.cwd === null
      ? workdir
      : order.cwd.startsWith('/')
        ? order.cwd
        : `${workdir === '/' ? '' : workdir}/${order.cwd}`;
  const inherited = Object.entries(template.env).filter(([name]) => spec.env[name] === undefined);
  return { ...order, cwd, user: order.user ?? template.user, env: { ...Object.fromEntries(inherited), ...order.env } };
}
