import { stopSandbox } from '../../checkout/index.ts';
import { parseDuration } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';

interface Options {
  readonly grace?: number;
  readonly timeout?: number;
}

/** Beside the time that its processes are given. */
const timeoutDefaultMs = 60_000;

export const addStop: AddCommand = (program, actions) => {
  withConditions(program.command('stop'))
    .description('end every process of a sandbox, and answer when it has stopped; the files stay')
    .argument('[sandbox]', 'id or name; without it, that of this checkout')
    .option('--grace <time>', 'between TERM and KILL, such as 5s', parseDuration)
    .option('-t, --timeout <time>', 'how long to try while nobody can say that it has stopped; 1m', parseDuration)
    .action(
      actions.of<Options, [sandbox?: string]>(async (call, name) => {
        const { grace, timeout = timeoutDefaultMs + (grace ?? 0) } = call.options;
        const sandbox = await stopSandbox(await call.client(), await sandboxOrHere(call, name), {
          ...call.conditions(),
          timeoutMs: timeout,
          ...(grace !== undefined && { graceMs: grace }),
        });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}\n`);
      }),
    );
};
