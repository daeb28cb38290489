/** Backups: directories of sandboxes as archives that the server keeps. */
import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import { parseDurationOrNever } from '../argument-parsers.ts';
import { type Actions, type AddCommand, withConditions, withIdempotencyKey } from '../command-adder.ts';
import { noteMore } from '../page-options.ts';
import { readableBytes, readableTable, readableWhen } from '../readable.ts';

export const addBackup: AddCommand = (program, actions) => {
  const backup = program.command('backup').description('directories of sandboxes as archives that the server keeps');
  addCreate(backup, actions);
  addList(backup, actions);
  addRestore(backup, actions);
  addDownload(backup, actions);
  addRemove(backup, actions);
};

interface CreateOptions {
  readonly name?: string;
  readonly gitignore?: boolean;
  readonly expiresIn?: number | null;
  readonly user?: string;
}

function addCreate(backup: Command, actions: Actions): void {
  withConditions(backup.command('create'))
    .description('keep a directory and print the id of the backup')
    .argument('<sandbox>', 'id or name')
    .argument('<path>', 'of a directory inside')
    .option('--name <name>', 'for people; need not be unique')
    .option('--gitignore', 'leave out what .gitignore files name, and .git')
    .option('--expires-in <time>', 'such as 30m, 7d, never', parseDurationOrNever)
    .option('--user <user>', 'with whose rights it is read')
    .action(
      actions.of<CreateOptions, [sandbox: string, path: string]>(async (call, name, path) => {
        const { options } = call;
        const made = await (await call.sandbox(name)).backups.create(path, {
          ...call.conditions(),
          ...(options.name !== undefined && { name: options.name }),
          ...(options.gitignore && { gitignore: true }),
          ...(options.expiresIn !== undefined && { expiresInMs: options.expiresIn }),
          ...(options.user !== undefined && { user: options.user }),
        });
        await call.print(made, () => `${made.id}\n`);
      }),
    );
}

function addList(backup: Command, actions: Actions): void {
  backup
    .command('ls', { isDefault: true })
    .description('list them, newest first')
    .argument('[sandbox]', 'only of this one: id, or name while it is there')
    .option('--cursor <cursor>', 'the next page')
    .action(
      actions.of<{ readonly cursor?: string }, [sandbox?: string]>(async (call, sandbox) => {
        const { cursor } = call.options;
        const page = await (await call.client()).backups.list({
          ...(sandbox !== undefined && { sandboxId: await call.sandboxId(sandbox) }),
          ...(cursor !== undefined && { cursor }),
        });
        const nowMs = call.io.nowMs();
        const rows = page.items.map((view) => [
          view.id,
          view.name ?? '-',
          view.sandboxId,
          view.path,
          readableBytes(view.sizeBytes),
          readableWhen(view.createdAt, nowMs),
          readableWhen(view.expiresAt, nowMs),
        ]);
        const heads = ['ID', 'NAME', 'SANDBOX', 'PATH', 'SIZE', 'CREATED', 'EXPIRES'];
        await call.print(page, () => (rows.length === 0 ? 'No backups.\n' : readableTable(heads, rows)));
        await noteMore(call, page);
      }),
    );
}

function addRestore(backup: Command, actions: Actions): void {
  withConditions(backup.command('restore'))
    .description('unpack a backup into a directory of any sandbox')
    .argument('<backup>', 'id')
    .argument('<sandbox>', 'id or name')
    .argument('<path>', 'of a directory inside; made if it is missing')
    .option('--user <user>', 'with whose rights it is written')
    .action(
      actions.of<{ readonly user?: string }, [backup: string, sandbox: string, path: string]>(
        async (call, id, name, path) => {
          const { user } = call.options;
          const options = { ...call.conditions(), ...(user !== undefined && { user }) };
          const written = await (await call.sandbox(name)).backups.restore(id, path, options);
          await call.print(written, () => '');
        },
      ),
    );
}

function addDownload(backup: Command, actions: Actions): void {
  backup
    .command('download')
    .description('save the archive, a compressed tar, to a file here')
    .argument('<backup>', 'id')
    .argument('<file>', 'is written; must not be there')
    .action(
      actions.of<object, [backup: string, file: string]>(async (call, id, file) => {
        const archive = await (await call.client()).backups.download(id);
        await pipeline(Readable.fromWeb(archive as never), createWriteStream(file, { flags: 'wx' }));
        await call.print({ downloaded: id, file }, () => '');
      }),
    );
}

function addRemove(backup: Command, actions: Actions): void {
  withIdempotencyKey(backup.command('rm'))
    .description('delete some')
    .argument('<backup...>', 'ids')
    .action(
      actions.of<object, [backups: string[]]>(async (call, ids) => {
        const { backups } = await call.client();
        for (const id of ids) await backups.delete(id, call.conditions());
        await call.print({ deleted: ids }, () => '');
      }),
    );
}
