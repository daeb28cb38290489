import { InvalidArgumentError } from 'commander';
import { parseDurationOrNever } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { readableWhen } from '../readable.ts';

export const addExtend: AddCommand = (program, actions) => {
  withConditions(program.command('extend'))
    .description('move the deadline of a sandbox')
    .argument('<sandbox>', 'id or name')
    .argument('<time>', 'from now on, such as 30m, 2h; or never', parseDurationOrNever)
    .action(
      actions.of<object, [sandbox: string, expiresInMs: number | null]>(async (call, name, expiresInMs) => {
        if (expiresInMs === 0) throw new InvalidArgumentError('A deadline lies in the future.');
        const sandbox = await call.sandbox(name);
        await sandbox.extend(expiresInMs, call.conditions());
        await call.print(
          sandbox.view,
          () => `${sandbox.id} expires ${readableWhen(sandbox.view.expiresAt, call.io.nowMs())}\n`,
        );
      }),
    );
};
