import { parseSize } from '../argument-parsers.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { readableTable, readableWhen } from '../readable.ts';

export const addTeams: AddCommand = (program, actions) => {
  const teams = program.command('teams').description('who owns sandboxes and keys; for admin keys');

  withIdempotencyKey(teams.command('create'))
    .description('make a team and print the id')
    .argument('<name>')
    .action(
      actions.of<object, [name: string]>(async (call, name) => {
        const team = await (await call.client()).teams.create({ name }, call.conditions());
        await call.print(team, () => `${team.id}\n`);
      }),
    );

  withIdempotencyKey(teams.command('set-disk'))
    .description('bound what a team may take on disks')
    .argument('<team>', 'id')
    .argument('<size>', 'such as 100g, or none', (text) => (text === 'none' ? null : parseSize(text)))
    .action(
      actions.of<object, [team: string, size: number | null]>(async (call, id, diskBytes) => {
        const team = await (await call.client()).teams.update(id, { diskBytes }, call.conditions());
        await call.print(team, () => '');
      }),
    );

  teams
    .command('ls')
    .description('list them')
    .action(
      actions.of<object, []>(async (call) => {
        const items = await (await call.client()).teams.list();
        const rows = items.map((team) => [team.id, team.name, readableWhen(team.createdAt, call.io.nowMs())]);
        await call.print({ items }, () => readableTable(['ID', 'NAME', 'CREATED'], rows));
      }),
    );
};
