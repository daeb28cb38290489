import { ensureReady, type Resolved } from '../../checkout/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { parseDuration, parseDurationOrNever } from '../argument-parsers.ts';
import { type CheckoutOptions, openCheckoutHere, readyTimeoutMs, say } from '../checkout-call.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';

interface Options extends CheckoutOptions {
  readonly expiresIn?: number | null;
  readonly use?: string;
  readonly wait?: boolean;
  readonly timeout?: number;
}

export const addStart: AddCommand = (program, actions) => {
  withConditions(program.command('start'))
    .description('begin a new life on the files of a stopped sandbox; without one, make or start that of this checkout')
    .argument('[sandbox]', 'id or name')
    .option('--expires-in <time>', 'such as 30m, 2h, never', parseDurationOrNever)
    .option('-t, --timeout <time>', 'of everything together, such as 30s; then it fails', parseDuration)
    .option('--config <file>', 'of a checkout: its definition, instead of atoll.yml')
    .option('--use <sandbox>', 'of a checkout: use this sandbox from now on, whoever made it')
    .option('--wait', 'of a checkout: until it runs and nobody is at its set-up; the default')
    .option('--no-wait', 'of a checkout: not for what others do with it')
    .action(
      actions.of<Options, [sandbox?: string]>(async (call, name) => {
        const { timeout } = call.options;
        if (timeout === undefined) return await start(call, name, undefined);
        const limit = AbortSignal.timeout(timeout);
        try {
          await start(call, name, limit);
        } catch (error) {
          // What was cut off is thrown as the signal's own reason.
          if (error !== limit.reason) throw error;
          throw new PlatformError('wait_timeout', `It was not ready after ${timeout} ms.`, { cause: error });
        }
      }),
    );
};

async function start(
  call: CommandCall<Options>,
  name: string | undefined,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (name === undefined) return await startHere(call, signal);
  const { expiresIn } = call.options;
  const sandbox = await call.sandbox(name);
  await sandbox.start({
    ...call.conditions(),
    ...(expiresIn !== undefined && { expiresInMs: expiresIn }),
    ...(signal && { signal }),
  });
  await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}, generation ${sandbox.generation}\n`);
}

async function startHere(call: CommandCall<Options>, signal: AbortSignal | undefined): Promise<void> {
  const { use, wait = true } = call.options;
  const { resolver, client, definition } = await openCheckoutHere(call, signal && { signal });
  const resolved: Resolved =
    use === undefined ? await resolver.ensure() : await resolver.use(await call.sandboxId(use));
  if (use !== undefined)
    say(call, `This checkout uses ${resolved.sandbox.id} from now on; whoever else uses it sees what you do.`);
  const { sandbox: there } = resolved;
  const isSleeping = there.state === 'stopped' || there.state === 'paused';
  const sandbox =
    !wait && !isSleeping
      ? there
      : await ensureReady(client, there, {
          timeoutMs: wait ? readyTimeoutMs + definition.setupTimeout : readyTimeoutMs,
          ...(wait && definition.setup.length > 0 && { setupHash: definition.setupHash }),
          onStart: () => {},
          onWait: (what) => {
            if (!call.isJson) say(call, `Waiting for ${there.id}: ${what}`);
          },
          ...(signal && { signal }),
        });
  await call.print({ ...sandbox.view, how: resolved.how }, () => `${sandbox.id} ${sandbox.state} (${resolved.how})\n`);
}
