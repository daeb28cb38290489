import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { readableTable, readableWhen } from '../readable.ts';

export const addUsers: AddCommand = (program, actions) => {
  const users = program.command('users').description('users of the team; keys may belong to one');

  withIdempotencyKey(users.command('create'))
    .description('make a user and print the id')
    .argument('<name>')
    .action(
      actions.of<object, [name: string]>(async (call, name) => {
        const user = await (await call.client()).users.create({ name }, call.conditions());
        await call.print(user, () => `${user.id}\n`);
      }),
    );

  users
    .command('ls')
    .description('list them')
    .action(
      actions.of<object, []>(async (call) => {
        const items = await (await call.client()).users.list();
        const rows = items.map((user) => [user.id, user.name, readableWhen(user.createdAt, call.io.nowMs())]);
        await call.print({ items }, () => readableTable(['ID', 'NAME', 'CREATED'], rows));
      }),
    );
};
