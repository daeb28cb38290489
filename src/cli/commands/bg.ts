/** Background processes of this checkout's sandbox, by name. */
import type { Command } from 'commander';
import {
  backgroundOf,
  checkBackgroundName,
  findBackground,
  listBackground,
  runCycle,
  startBackground,
  stopBackground,
} from '../../checkout/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { parsePort } from '../argument-parsers.ts';
import { type CheckoutOptions, cycleOptions, openCheckoutHere } from '../checkout-call.ts';
import { withCheckoutOptions } from '../checkout-options.ts';
import type { Actions, AddCommand } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { endOfProcess, presentOutput, printOutput } from '../process-printing.ts';
import { readableTable, readableWhen } from '../readable.ts';

interface Options extends CheckoutOptions {
  readonly run?: string;
  readonly port?: number;
  readonly follow?: boolean;
}

export const addBg: AddCommand = (program, actions) => {
  const bg = program.command('bg').description('background processes of this checkout, by name');
  for (const verb of ['start', 'restart'] as const) addStart(bg, actions, verb);
  addStop(bg, actions);
  addLogs(bg, actions);
  addList(bg, actions);
};

function addStart(bg: Command, actions: Actions, verb: 'start' | 'restart'): void {
  withCheckoutOptions(bg.command(verb))
    .description(
      verb === 'start' ? 'start one, instead of the one that runs' : 'the same; its preview keeps its address',
    )
    .argument('<name>', 'as in atoll.yml')
    .option('--run <text>', 'what to run, with a shell, instead of what atoll.yml says')
    .option('--port <port>', 'where it listens: it is ready when a connection stays open', parsePort)
    .action(
      actions.of<Options, [name: string]>(async (call, name) => {
        checkBackgroundName(name);
        const checkout = await openCheckoutHere(call);
        const { definition } = checkout;
        const { run, port } = call.options;
        const given = { ...(run !== undefined && { run }), ...(port !== undefined && { port }) };
        const background = backgroundOf(definition, name, given);
        const sync = call.options.sync === false ? undefined : await checkout.sync();
        const options = cycleOptions(call, checkout, { reason: `bg ${verb} ${name}`, sync });
        const { result } = await runCycle(options, {
          mayPull: () => false,
          run: ({ sandbox }) => startBackground(sandbox, { name, definition, background }),
        });
        const { process, url } = result;
        await call.print({ name, url, process: process.view }, () => `${process.id}${url === null ? '' : ` ${url}`}\n`);
      }),
    );
}

function addStop(bg: Command, actions: Actions): void {
  withCheckoutOptions(bg.command('stop'))
    .description('end one')
    .argument('<name>')
    .action(
      actions.of<Options, [name: string]>(async (call, name) => {
        checkBackgroundName(name);
        const checkout = await openCheckoutHere(call);
        await checkout.resolver.get();
        const options = cycleOptions(call, checkout, { reason: `bg stop ${name}`, sync: undefined });
        const { result } = await runCycle(options, {
          mayPull: () => false,
          isSetUp: false,
          run: ({ sandbox }) => stopBackground(sandbox, name),
        });
        if (!result) throw notThere(name);
        await call.print({ stopped: name }, () => `${name}\n`);
      }),
    );
}

function addLogs(bg: Command, actions: Actions): void {
  withCheckoutOptions(bg.command('logs'))
    .description('what one has written')
    .argument('<name>')
    .option('-f, --follow', 'go on until it has ended')
    .action(
      actions.of<Options, [name: string]>(async (call, name) => {
        checkBackgroundName(name);
        const process = await findBackground(await sandboxHere(call), name);
        if (process === undefined) throw notThere(name);
        const enough = new AbortController();
        const stopListening = call.io.onInterrupt(() => enough.abort());
        try {
          if (call.options.follow) await printOutput(call, process.output({ signal: enough.signal }));
          else await printOutput(call, presentOutput(process));
        } finally {
          stopListening();
        }
      }),
    );
}

function addList(bg: Command, actions: Actions): void {
  withCheckoutOptions(bg.command('ls'))
    .description('which there are')
    .action(
      actions.of<Options, []>(async (call) => {
        const items = await listBackground(await sandboxHere(call));
        const views = items.map(({ name, process }) => ({ ...process.view, name }));
        await call.print({ items: views }, () => {
          if (views.length === 0) return 'No background processes. Start one with: atoll bg start NAME\n';
          const rows = views.map(({ name, pid, exit, startedAt }) => [
            name,
            String(pid),
            exit === null ? 'running' : endOfProcess(exit),
            readableWhen(startedAt, call.io.nowMs()),
          ]);
          return readableTable(['NAME', 'PID', 'STATE', 'STARTED'], rows);
        });
      }),
    );
}

async function sandboxHere(call: CommandCall<Options>) {
  return (await (await openCheckoutHere(call)).resolver.get()).sandbox;
}

function notThere(name: string): PlatformError {
  return new PlatformError('process_not_found', `There is no background process "${name}".`);
}
