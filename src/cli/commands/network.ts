import { type AddCommand, withConditions } from '../command-adder.ts';
import { collectRule, type NetworkOptions, parseMode, policyOf, readableRule, ruleHelp } from '../network-options.ts';
import { readableTable } from '../readable.ts';

type Options = Omit<NetworkOptions, 'network'>;

/** `set` replaces the whole policy: what is not named again is gone. */
export const addNetwork: AddCommand = (program, actions) => {
  const network = program.command('network').description('show or change what of the network a sandbox reaches');
  network
    .command('show')
    .description('show the mode and the rules')
    .argument('<sandbox>', 'id or name')
    .action(
      actions.of<object, [sandbox: string]>(async (call, name) => {
        const policy = (await call.sandbox(name)).network;
        await call.print(policy, () => {
          if (policy.mode === 'none') return 'none\n';
          const rows = (['allow', 'deny'] as const).flatMap((list) =>
            policy[list].map((rule) => [list, readableRule(rule)]),
          );
          return rows.length === 0 ? 'full\n' : `full\n${readableTable(['LIST', 'RULE'], rows)}`;
        });
      }),
    );
  withConditions(network.command('set'))
    .description('replace mode and rules; it holds for open connections too')
    .argument('<sandbox>', 'id or name')
    .argument('<mode>', 'none or full', parseMode)
    .option('--allow <rule>', `before deny, and the only way to private ranges; ${ruleHelp}`, collectRule)
    .option('--deny <rule>', `unless allowed; ${ruleHelp}`, collectRule)
    .action(
      actions.of<Options, [sandbox: string, mode: 'none' | 'full']>(async (call, name, mode) => {
        const policy = policyOf(mode, call.options);
        const sandbox = await call.sandbox(name);
        await sandbox.setNetwork(policy, call.conditions());
        await call.print(sandbox.network, () => '');
      }),
    );
};
