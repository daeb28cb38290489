/** Leases from the command line: for scripts that must not be disturbed. */
import type { Command } from 'commander';
import { isId, type LeaseView } from '../../protocol/index.ts';
import { collectText, parseDuration } from '../argument-parsers.ts';
import { type Actions, type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { readableSpan, readableTable, readableWhen } from '../readable.ts';

interface AcquireOptions {
  readonly holder?: string;
  readonly reason?: string;
  readonly ttl?: number;
  readonly wait?: number;
  readonly also?: string[];
}

export const addLease: AddCommand = (program, actions) => {
  const lease = program.command('lease').description('exclusive rights to act on a sandbox, which end by themselves');
  addAcquire(lease, actions);
  addRenew(lease, actions);
  addRelease(lease, actions);
  addList(lease, actions);
  addRun(lease, actions);
};

function addAcquire(lease: Command, actions: Actions): void {
  withAcquireOptions(lease.command('acquire'))
    .description('acquire a lease and print its id and tokens')
    .action(
      actions.of<AcquireOptions, [resource: string]>(async (call, resource) => {
        const view = await (await call.client()).leases.acquire({
          ...(await acquireOptions(call, resource)),
          ...call.conditions(),
        });
        await call.print(view, () => describeLease(view));
      }),
    );
}

function addRenew(lease: Command, actions: Actions): void {
  withIdempotencyKey(lease.command('renew'))
    .description('begin its term anew')
    .argument('<lease>', 'its id')
    .option('--ttl <time>', 'how long it lasts from now on, such as 30s', parseDuration)
    .action(
      actions.of<{ readonly ttl?: number }, [leaseId: string]>(async (call, leaseId) => {
        const { ttl } = call.options;
        const { leases } = await call.client();
        const view = await leases.renew(leaseId, { ...call.conditions(), ...(ttl !== undefined && { ttlMs: ttl }) });
        await call.print(view, () => describeLease(view));
      }),
    );
}

function addRelease(lease: Command, actions: Actions): void {
  withIdempotencyKey(lease.command('release'))
    .description('give it up; the next in the queue gets it')
    .argument('<lease>', 'its id')
    .action(
      actions.of<object, [leaseId: string]>(async (call, leaseId) => {
        await (await call.client()).leases.release(leaseId, call.conditions());
        await call.print({ released: leaseId }, () => `${leaseId}\n`);
      }),
    );
}

function addList(lease: Command, actions: Actions): void {
  lease
    .command('ls')
    .description('list the leases that are held')
    .argument('[resource]', 'only on this one')
    .action(
      actions.of<object, [resource?: string]>(async (call, resource) => {
        const { leases } = await call.client();
        const items = await leases.list(resource === undefined ? {} : { resource: await resourceOf(call, resource) });
        await call.print({ items }, () => {
          if (items.length === 0) return 'No leases are held.\n';
          const rows = items.map((item) => [
            item.id,
            item.grants.map((grant) => `${grant.resource} (${grant.token})`).join(' '),
            item.holder,
            readableWhen(item.grantedAt, call.io.nowMs()),
            readableSpan(item.endsInMs),
            String(item.waiting),
            item.reason || '-',
          ]);
          return readableTable(
            ['LEASE', 'RESOURCES (TOKEN)', 'HOLDER', 'GRANTED', 'ENDS IN', 'WAITING', 'REASON'],
            rows,
          );
        });
      }),
    );
}

function addRun(lease: Command, actions: Actions): void {
  withAcquireOptions(lease.command('run'))
    .description('run a program here while holding a lease; atoll commands in it carry the token by themselves')
    .usage('[options] <resource> -- <command...>')
    .argument('<command...>', 'the program and its arguments')
    .action(
      actions.of<AcquireOptions, [resource: string, command: string[]]>(async (call, resource, command) => {
        const interrupted = new AbortController();
        const stopListening = call.io.onInterrupt(() => interrupted.abort());
        try {
          const options = {
            ...(await acquireOptions(call, resource)),
            ...call.conditions(),
            signal: interrupted.signal,
          };
          call.exitCode = await (await call.client()).leases.hold(options, ({ lease: held, signal }) =>
            call.io.runHere(command, { env: leaseEnvironment(held), signal }),
          );
        } finally {
          stopListening();
        }
      }),
    );
}

function withAcquireOptions(command: Command): Command {
  return withIdempotencyKey(command)
    .argument('<resource>', 'a sandbox (id or name), or name:… for a name of your own')
    .option('--also <resource>', 'together with this one, all or none; repeatable', collectText)
    .option('--holder <name>', 'who you are, shown to those who wait')
    .option('--reason <text>', 'why, shown to those who wait')
    .option('--ttl <time>', 'how long it lasts unless renewed, such as 30s', parseDuration)
    .option('--wait <time>', 'how long to wait in the queue, such as 1m', parseDuration);
}

async function acquireOptions(call: CommandCall<AcquireOptions>, resource: string) {
  const { holder, reason, ttl, wait, also = [] } = call.options;
  const resources: string[] = [];
  for (const name of [resource, ...also]) resources.push(await resourceOf(call, name));
  return {
    resources,
    holder: holder ?? call.io.env['USER'] ?? 'atoll-cli',
    ...(reason !== undefined && { reason }),
    ...(ttl !== undefined && { ttlMs: ttl }),
    ...(wait !== undefined && { waitMs: wait }),
  };
}

async function resourceOf(call: CommandCall, name: string): Promise<string> {
  return name.startsWith('name:') || isId('sandbox', name) ? name : await call.sandboxId(name);
}

function leaseEnvironment(lease: LeaseView): Record<string, string> {
  const [first] = lease.grants;
  return {
    ATOLL_LEASE_ID: lease.id,
    ATOLL_LEASE_RESOURCE: first!.resource,
    ATOLL_LEASE_TOKEN: String(first!.token),
    ATOLL_LEASE_GRANTS: JSON.stringify(lease.grants),
  };
}

function describeLease(lease: LeaseView): string {
  const grants = lease.grants.map((grant) => `${grant.resource} token ${grant.token}`).join(', ');
  return `${lease.id} ${grants}, ends in ${readableSpan(lease.endsInMs)}\n`;
}
