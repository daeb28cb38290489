import type { AddCommand } from '../command-adder.ts';
import { readableFields } from '../readable.ts';

export const addOperations: AddCommand = (program, actions) => {
  program
    .command('operations')
    .description('show what became of a change')
    .argument('<operation>', 'its id, or key: and its idempotency key')
    .action(
      actions.of<object, [reference: string]>(async (call, reference) => {
        const client = await call.client();
        const found = await client.operation(
          reference.startsWith('key:') ? { idempotencyKey: reference.slice('key:'.length) } : { id: reference },
        );
        await call.print(found, () =>
          readableFields([
            ['Id', found.id],
            ['Kind', found.kind],
            ['State', found.state],
            ['Subject', found.subjectId ?? '-'],
            ['Started', found.startedAt],
            ['Finished', found.finishedAt ?? '-'],
            ['Answer', found.answer === null ? '-' : JSON.stringify(found.answer)],
          ]),
        );
      }),
    );
};
