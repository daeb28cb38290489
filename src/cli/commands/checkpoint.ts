/** Checkpoints: the files of a sandbox as of one instant. */
import type { Command } from 'commander';
import type { CheckpointView } from '../../sdk/index.ts';
import { parseCount, parseDurationOrNever } from '../argument-parsers.ts';
import { type Actions, type AddCommand, withConditions, withIdempotencyKey } from '../command-adder.ts';
import { noteMore, type PageOptions, pageOf } from '../page-options.ts';
import { readableBytes, readableFields, readablePairs, readableTable, readableWhen } from '../readable.ts';

export const addCheckpoint: AddCommand = (program, actions) => {
  const checkpoint = program.command('checkpoint').description('the files of a sandbox as of one instant');
  addCreate(checkpoint, actions);
  addList(checkpoint, actions);
  addShow(checkpoint, actions);
  addRemove(checkpoint, actions);
};

function addCreate(checkpoint: Command, actions: Actions): void {
  withConditions(checkpoint.command('create'))
    .description('make one and print its id')
    .argument('<sandbox>', 'id or name')
    .argument('[name]', 'for people; need not be unique')
    .option('--expires-in <time>', 'such as 30m, 7d, never', parseDurationOrNever)
    .action(
      actions.of<{ readonly expiresIn?: number | null }, [sandbox: string, name?: string]>(
        async (call, sandbox, name) => {
          const { expiresIn } = call.options;
          const made = await (await call.sandbox(sandbox)).checkpoints.create({
            ...call.conditions(),
            ...(name !== undefined && { name }),
            ...(expiresIn !== undefined && { expiresInMs: expiresIn }),
          });
          await call.print(made, () => `${made.id}\n`);
        },
      ),
    );
}

function addList(checkpoint: Command, actions: Actions): void {
  checkpoint
    .command('ls', { isDefault: true })
    .description('list them, newest first')
    .argument('[sandbox]', 'only of this one: id, or name while it is there')
    .option('--name <name>', 'only of this name')
    .option('--limit <count>', 'of one page', parseCount)
    .option('--cursor <cursor>', 'the next page')
    .action(
      actions.of<PageOptions & { readonly name?: string }, [sandbox?: string]>(async (call, sandbox) => {
        const { name } = call.options;
        const page = await (await call.client()).checkpoints.list({
          ...(sandbox !== undefined && { sandboxId: await call.sandboxId(sandbox) }),
          ...(name !== undefined && { name }),
          ...pageOf(call.options),
        });
        const nowMs = call.io.nowMs();
        await call.print(page, () =>
          page.items.length === 0
            ? 'No checkpoints.\n'
            : readableTable(
                heads,
                page.items.map((one) => rowOf(one, nowMs)),
              ),
        );
        await noteMore(call, page);
      }),
    );
}

function addShow(checkpoint: Command, actions: Actions): void {
  checkpoint
    .command('show')
    .description('show one')
    .argument('<checkpoint>', 'id')
    .action(
      actions.of<object, [checkpoint: string]>(async (call, id) => {
        const view = await (await call.client()).checkpoints.get(id);
        await call.print(view, () => describe(view, call.io.nowMs()));
      }),
    );
}

function addRemove(checkpoint: Command, actions: Actions): void {
  withIdempotencyKey(checkpoint.command('rm'))
    .description('delete some, when nothing is being made from them any more')
    .argument('<checkpoint...>', 'ids')
    .action(
      actions.of<object, [checkpoints: string[]]>(async (call, ids) => {
        const { checkpoints } = await call.client();
        for (const id of ids) await checkpoints.delete(id, call.conditions());
        await call.print({ deleted: ids }, () => '');
      }),
    );
}

const heads = ['ID', 'NAME', 'SANDBOX', 'STATE', 'SIZE', 'CREATED', 'EXPIRES'];

function rowOf(view: CheckpointView, nowMs: number): string[] {
  return [
    view.id,
    view.name ?? '-',
    view.sandboxId,
    view.state,
    sizeOf(view),
    readableWhen(view.createdAt, nowMs),
    readableWhen(view.expiresAt, nowMs),
  ];
}

function describe(view: CheckpointView, nowMs: number): string {
  return readableFields([
    ['Id', view.id],
    ['Name', view.name ?? '-'],
    ['Sandbox', `${view.sandboxId}, generation ${view.generation}`],
    ['State', view.state],
    ['Template', view.template],
    ['Size', sizeOf(view)],
    ['Stood still', view.frozenMs === null ? '-' : `${view.frozenMs} ms`],
    ['Created', `${view.createdAt} (${readableWhen(view.createdAt, nowMs)}) by ${view.createdBy}`],
    ['Expires', readableWhen(view.expiresAt, nowMs)],
    ['Metadata', readablePairs(view.metadata)],
  ]);
}

function sizeOf({ sizeBytes }: CheckpointView): string {
  return sizeBytes === null ? '-' : readableBytes(sizeBytes);
}
