/** Ends the sandbox of this checkout and makes a new one; nobody gets in between. */
import { type CheckoutOptions, openCheckoutHere } from '../checkout-call.ts';
import type { AddCommand } from '../command-adder.ts';

export const addReset: AddCommand = (program, actions) => {
  program
    .command('reset')
    .description('end the sandbox of this checkout, with all that is in it, and make a new one')
    .option('--config <file>', 'its definition, instead of atoll.yml')
    .action(
      actions.of<CheckoutOptions, []>(async (call) => {
        const { resolver } = await openCheckoutHere(call);
        const { sandbox } = await resolver.reset();
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}\n`);
      }),
    );
};
