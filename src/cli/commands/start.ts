import { ensureRunning, type Resolved } from '../../checkout/index.ts';
import { parseDurationOrNever } from '../argument-parsers.ts';
import { type CheckoutOptions, openCheckoutHere, say } from '../checkout-call.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';

interface Options extends CheckoutOptions {
  readonly expiresIn?: number | null;
  readonly use?: string;
}

const readyTimeoutMs = 120_000;

export const addStart: AddCommand = (program, actions) => {
  withConditions(program.command('start'))
    .description('begin a new life on the files of a stopped sandbox; without one, make or start that of this checkout')
    .argument('[sandbox]', 'id or name')
    .option('--expires-in <time>', 'such as 30m, 2h, never', parseDurationOrNever)
    .option('--config <file>', 'of a checkout: its definition, instead of atoll.yml')
    .option('--use <sandbox>', 'of a checkout: use this sandbox from now on, whoever made it')
    .action(
      actions.of<Options, [sandbox?: string]>(async (call, name) => {
        const { expiresIn } = call.options;
        if (name === undefined) return await startHere(call);
        const sandbox = await call.sandbox(name);
        await sandbox.start({ ...call.conditions(), ...(expiresIn !== undefined && { expiresInMs: expiresIn }) });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}, generation ${sandbox.generation}\n`);
      }),
    );
};

async function startHere(call: CommandCall<Options>): Promise<void> {
  const { use } = call.options;
  const { resolver, client } = await openCheckoutHere(call);
  const resolved: Resolved =
    use === undefined ? await resolver.ensure() : await resolver.use(await call.sandboxId(use));
  if (use !== undefined)
    say(call, `This checkout uses ${resolved.sandbox.id} from now on; whoever else uses it sees what you do.`);
  const sandbox = await ensureRunning(client, resolved.sandbox, { timeoutMs: readyTimeoutMs, onStart: () => {} });
  await call.print({ ...sandbox.view, how: resolved.how }, () => `${sandbox.id} ${sandbox.state} (${resolved.how})\n`);
}
