/** Ports of a sandbox: what listens inside, and what of it is shown outside. */
import type { Command } from 'commander';
import type { Exposure, PortList } from '../../sdk/index.ts';
import { parsePort } from '../argument-parsers.ts';
import { type Actions, type AddCommand, withConditions } from '../command-adder.ts';
import { readableTable } from '../readable.ts';

export const addPorts: AddCommand = (program, actions) => {
  const ports = program
    .command('ports')
    .description('what listens in a sandbox, and what of it is shown outside as a preview');
  addList(ports, actions);
  addExpose(ports, actions);
  addUnexpose(ports, actions);
  addRotate(ports, actions);
};

function addList(ports: Command, actions: Actions): void {
  ports
    .command('ls', { isDefault: true })
    .description('list the ports that listen inside, and those that are exposed')
    .argument('<sandbox>', 'id or name')
    .action(
      actions.of<object, [sandbox: string]>(async (call, name) => {
        const list = await (await call.sandbox(name)).ports.list();
        await call.print(list, () => describePorts(list));
      }),
    );
}

function addExpose(ports: Command, actions: Actions): void {
  withConditions(ports.command('expose'))
    .description('show a port outside and print its address and token; again: the same token')
    .argument('<sandbox>', 'id or name')
    .argument('<port>', 'inside', parsePort)
    .option('--public', 'everybody who knows the address may come')
    .option('--no-public', 'only with the token')
    .action(
      actions.of<{ readonly public?: boolean }, [sandbox: string, port: number]>(async (call, name, port) => {
        const { public: isPublic } = call.options;
        const { ports: ofSandbox } = await call.sandbox(name);
        const exposure = await ofSandbox.expose(port, {
          ...call.conditions(),
          ...(isPublic !== undefined && { public: isPublic }),
        });
        await call.print(exposure, () => describeExposure(exposure));
      }),
    );
}

function addUnexpose(ports: Command, actions: Actions): void {
  withConditions(ports.command('unexpose'))
    .description('end the preview of a port and cut what goes on in it')
    .argument('<sandbox>', 'id or name')
    .argument('<port>', 'inside', parsePort)
    .action(
      actions.of<object, [sandbox: string, port: number]>(async (call, name, port) => {
        await (await call.sandbox(name)).ports.unexpose(port, call.conditions());
        await call.print({ unexposed: port }, () => '');
      }),
    );
}

function addRotate(ports: Command, actions: Actions): void {
  withConditions(ports.command('rotate'))
    .description('give the preview of a port another token; the earlier one is refused from now on')
    .argument('<sandbox>', 'id or name')
    .argument('<port>', 'inside', parsePort)
    .action(
      actions.of<object, [sandbox: string, port: number]>(async (call, name, port) => {
        const exposure = await (await call.sandbox(name)).ports.rotateToken(port, call.conditions());
        await call.print(exposure, () => describeExposure(exposure));
      }),
    );
}

function describePorts({ listening, exposed }: PortList): string {
  const shown = new Map(exposed.map((one) => [one.port, one]));
  const open = new Set(listening.map(({ port }) => port));
  const rows = listening.map(({ port, family, address, pid, processName }) => {
    const process = pid === null ? '-' : `${pid} ${processName}`;
    return [String(port), family === 6 ? `[${address}]` : address, process, exposureOf(shown.get(port))];
  });
  const silent = exposed.filter(({ port }) => !open.has(port));
  for (const one of silent) rows.push([String(one.port), 'nothing listens', '-', exposureOf(one)]);
  return rows.length === 0
    ? 'Nothing listens, and nothing is exposed.\n'
    : readableTable(['PORT', 'ADDRESS', 'PROCESS', 'PREVIEW'], rows);
}

function exposureOf(exposed: PortList['exposed'][number] | undefined): string {
  return exposed === undefined ? '-' : `${exposed.url}${exposed.public ? ' (public)' : ''}`;
}

function describeExposure({ url, pathUrl, token, public: isPublic }: Exposure): string {
  return `${url}\n${pathUrl}\n${isPublic ? 'public' : `token ${token}`}\n`;
}
