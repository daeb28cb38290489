/** A port of this machine that leads to one in a sandbox, for as long as the command runs. */
import { InvalidArgumentError } from 'commander';
import { parsePort } from '../argument-parsers.ts';
import type { AddCommand } from '../command-adder.ts';
import { openTunnel } from '../tunnel.ts';

interface Ports {
  /** 0: any free one. */
  readonly local: number;
  readonly inside: number;
}

export const addTunnel: AddCommand = (program, actions) => {
  program
    .command('tunnel')
    .description('lead a port of this machine, on loopback only, to one in a sandbox, until interrupted')
    .argument('<sandbox>', 'id or name')
    .argument('<local:port>', 'such as 8080:80; 0:80 takes any free port here, 80 the same one', parsePorts)
    .action(
      actions.of<object, [sandbox: string, ports: Ports]>(async (call, name, { local, inside }) => {
        const sandbox = await call.sandbox(name);
        const interrupted = Promise.withResolvers<void>();
        const stopListening = call.io.onInterrupt(interrupted.resolve);
        try {
          const tunnel = await openTunnel({
            localPort: local,
            request: () => sandbox.ports.connectRequest(inside),
            onFailure: (message) => void call.note(`atoll: ${message}`),
          });
          await call.print(
            { host: tunnel.host, port: tunnel.port, sandboxId: sandbox.id, insidePort: inside },
            () => `${tunnel.host}:${tunnel.port} leads to port ${inside} of ${sandbox.id}; Ctrl-C ends it\n`,
          );
          await interrupted.promise;
          await tunnel.close();
        } finally {
          stopListening();
        }
      }),
    );
};

function parsePorts(text: string): Ports {
  const [first = '', second, ...more] = text.split(':');
  if (more.length > 0) throw new InvalidArgumentError('It is LOCAL:PORT, such as 8080:80.');
  const inside = parsePort(second ?? first);
  return { local: first === '0' && second !== undefined ? 0 : parsePort(first), inside };
}
