import type { Scope } from '../../protocol/index.ts';
import { collectScope, parseDuration } from '../argument-parsers.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';

interface Options {
  readonly name?: string;
  readonly scope?: Scope[];
  readonly expiresIn?: number;
}

export const addTokens: AddCommand = (program, actions) => {
  withIdempotencyKey(program.command('tokens'))
    .description(
      'make an expiring token that reaches one sandbox only, and print its text ("keys ls" lists, "keys rm" revokes)',
    )
    .argument('<sandbox>', 'id or name')
    .option('--name <name>')
    .option('--scope <scope>', 'what it may do; repeatable (default: sandboxes:read, sandboxes:exec)', collectScope)
    .option('--expires-in <time>', 'such as 1h', parseDuration)
    .action(
      actions.of<Options, [sandbox: string]>(async (call, sandboxName) => {
        const { name, scope, expiresIn } = call.options;
        const client = await call.client();
        const token = await client.sandboxes.createToken(
          await call.sandboxId(sandboxName),
          {
            ...(name !== undefined && { name }),
            ...(scope !== undefined && { scopes: scope }),
            ...(expiresIn !== undefined && { expiresInMs: expiresIn }),
          },
          call.conditions(),
        );
        await call.print(token, () => `${token.key}\n`);
      }),
    );
};
