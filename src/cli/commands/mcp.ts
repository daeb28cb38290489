import { type CheckoutOptions, openCheckoutHere } from '../checkout-call.ts';
import { withCheckoutOptions } from '../checkout-options.ts';
import type { AddCommand } from '../command-adder.ts';

export const addMcp: AddCommand = (program, actions) => {
  withCheckoutOptions(program.command('mcp'))
    .description('serve tools for the sandbox of this checkout to an agent, over MCP on stdin and stdout')
    .action(
      actions.of<CheckoutOptions, []>(async (call) => {
        // A checkout or definition that cannot be used is told now and not with the first tool.
        await openCheckoutHere(call);
        // Loaded only here: no other command should wait for it.
        const { serveTools } = await import('../mcp/serve-tools.ts');
        await serveTools(call);
      }),
    );
};
