import type { KeyView, Scope } from '../../protocol/index.ts';
import { collectScope, parseDuration } from '../argument-parsers.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { readableTable, readableWhen } from '../readable.ts';

interface CreateOptions {
  readonly scope?: Scope[];
  readonly user?: string;
  readonly team?: string;
  readonly expiresIn?: number;
}

const defaultScopes: readonly Scope[] = ['sandboxes:read', 'sandboxes:write', 'sandboxes:exec', 'leases:write'];

export const addKeys: AddCommand = (program, actions) => {
  const keys = program.command('keys').description('API keys of the team');

  withIdempotencyKey(keys.command('create'))
    .description('make a key and print its text, which is shown only now')
    .argument('<name>')
    .option('--scope <scope>', `what it may do; repeatable (default: ${defaultScopes.join(', ')})`, collectScope)
    .option('--user <user>', 'whose it is, by id')
    .option('--team <team>', 'of another team, by id; for admin keys')
    .option('--expires-in <time>', 'such as 30d', parseDuration)
    .action(
      actions.of<CreateOptions, [name: string]>(async (call, name) => {
        const { scope, user, team, expiresIn } = call.options;
        const key = await (await call.client()).keys.create(
          {
            name,
            scopes: [...(scope ?? defaultScopes)],
            ...(user !== undefined && { userId: user }),
            ...(team !== undefined && { teamId: team }),
            ...(expiresIn !== undefined && { expiresInMs: expiresIn }),
          },
          call.conditions(),
        );
        await call.print(key, () => `${key.key}\n`);
        if (!call.isJson) await call.note(`${key.id} is its id. Its text is not shown again.`);
      }),
    );

  keys
    .command('ls')
    .description('list keys and tokens, without their texts')
    .action(
      actions.of<object, []>(async (call) => {
        const items = await (await call.client()).keys.list();
        await call.print({ items }, () =>
          readableTable(
            ['ID', 'NAME', 'SCOPES', 'CREATED', 'STATE', 'SANDBOX'],
            items.map((key) => rowOf(key, call.io.nowMs())),
          ),
        );
      }),
    );

  withIdempotencyKey(keys.command('rm'))
    .alias('revoke')
    .description('revoke a key or token at once')
    .argument('<key>', 'its id')
    .action(
      actions.of<object, [keyId: string]>(async (call, keyId) => {
        await (await call.client()).keys.revoke(keyId, call.conditions());
        await call.print({ revoked: keyId }, () => `${keyId}\n`);
      }),
    );
};

function rowOf(key: KeyView, nowMs: number): readonly string[] {
  const state =
    key.revokedAt !== null
      ? `revoked ${readableWhen(key.revokedAt, nowMs)}`
      : key.expiresAt === null
        ? 'good'
        : `ends ${readableWhen(key.expiresAt, nowMs)}`;
  return [key.id, key.name, key.scopes.join(','), readableWhen(key.createdAt, nowMs), state, key.sandboxId ?? '-'];
}
