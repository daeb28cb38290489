/** Workspaces in sandboxes: attach, detach, diff, commit, update, drop. */
import type { Command } from 'commander';
import type { AttachmentView, WorkspaceDiff } from '../../sdk/index.ts';
import { parseCount } from '../argument-parsers.ts';
import { type Actions, withConditions } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { readableTable } from '../readable.ts';
import { parseAuthor, parseTrailer } from '../workspace-words.ts';

export function addSandboxWorkspace(workspace: Command, actions: Actions): void {
  addAttach(workspace, actions);
  addAttached(workspace, actions);
  addDetach(workspace, actions);
  addDiff(workspace, actions);
  addCommit(workspace, actions);
  addUpdate(workspace, actions);
  addDrop(workspace, actions);
}

function addAttach(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('attach'))
    .description('put a version into a running sandbox, and print where')
    .argument('<sandbox>', 'id or name')
    .argument('<workspace>', 'id or name')
    .argument('[path]', 'free, or an empty directory; without: /workspace/NAME')
    .option('--at <number>', 'this version, not the newest', parseCount)
    .action(
      actions.of<{ readonly at?: number }, [sandbox: string, workspace: string, path?: string]>(
        async (call, sandbox, reference, path) => {
          const { at } = call.options;
          const made = await (await call.sandbox(sandbox)).workspaces.attach(reference, {
            ...(path !== undefined && { path }),
            ...(at !== undefined && { version: at }),
            ...call.conditions(),
          });
          await call.print(made, () => `${made.path}\n`);
        },
      ),
    );
}

function addAttached(workspace: Command, actions: Actions): void {
  workspace
    .command('attached')
    .description('list the workspaces of a sandbox')
    .argument('<sandbox>', 'id or name')
    .action(
      actions.of<object, [sandbox: string]>(async (call, sandbox) => {
        const items = await (await call.sandbox(sandbox)).workspaces.list();
        const rows = items.map((one) => [
          ...[one.workspace, one.path, String(one.base.number), one.isCurrent ? 'yes' : 'no'],
        ]);
        const heads = ['WORKSPACE', 'PATH', 'BASE', 'CURRENT'];
        await call.print({ items }, () => (rows.length === 0 ? 'No workspaces.\n' : readableTable(heads, rows)));
      }),
    );
}

function addDetach(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('detach'))
    .description('let a sandbox have a workspace no more; its files stay')
    .argument('<sandbox>', 'id or name')
    .argument('<workspace>', 'id or name')
    .option('--remove-files', 'its files go too, changed or not')
    .action(
      actions.of<{ readonly removeFiles?: boolean }, [sandbox: string, workspace: string]>(
        async (call, sandbox, reference) => {
          const removeFiles = call.options.removeFiles === true;
          await (await inSandbox(call, sandbox, reference)).detach({ removeFiles, ...call.conditions() });
          await call.print({ detached: reference }, () => '');
        },
      ),
    );
}

interface DiffOptions {
  readonly patch?: boolean;
  readonly from?: number;
  readonly to?: number;
}

function addDiff(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('diff'))
    .description('show what a sandbox has changed since its base, or what differs between versions')
    .usage('[options] <sandbox> <workspace> | <workspace> --from N [--to M]')
    .argument('<sandbox>', 'id or name; between versions: the workspace')
    .argument('[workspace]', 'id or name')
    .option('--patch', 'as a patch that git apply takes')
    .option('--from <number>', 'between versions: the earlier one', parseCount)
    .option('--to <number>', 'the later one; without: the newest', parseCount)
    .action(
      actions.of<DiffOptions, [first: string, second?: string]>(async (call, first, second) => {
        if (second === undefined) await diffVersions(call, first);
        else await diffSandbox(call, first, second);
      }),
    );
}

async function diffVersions(call: CommandCall<DiffOptions>, reference: string): Promise<void> {
  const { from = 1, to, patch } = call.options;
  const { workspaces } = await call.client();
  const between = { from, ...(to !== undefined && { to }) };
  if (patch) await printBytes(call, await workspaces.patch(reference, between));
  else await printDiff(call, await workspaces.diff(reference, between));
}

async function diffSandbox(call: CommandCall<DiffOptions>, sandbox: string, reference: string): Promise<void> {
  const workspace = await inSandbox(call, sandbox, reference);
  if (call.options.patch) await printBytes(call, await workspace.patch(call.conditions()));
  else {
    const diff = await workspace.diff(call.conditions());
    await printDiff(call, diff);
    for (const path of call.isJson ? [] : diff.leftOut) await call.note(`left out: ${path}`);
  }
}

async function printDiff(call: CommandCall<DiffOptions>, diff: WorkspaceDiff): Promise<void> {
  const letters = { added: 'A', modified: 'M', deleted: 'D', renamed: 'R', typeChanged: 'T' } as const;
  const rows = diff.files.map(({ kind, path, from, insertions, deletions }) => [
    letters[kind],
    insertions === null ? 'binary' : `+${insertions} -${deletions}`,
    from === null ? path : `${from} -> ${path}`,
  ]);
  const { files, insertions, deletions } = diff.counts;
  const total = `${files} files, +${insertions} -${deletions}\n`;
  const table = readableTable(['', 'LINES', 'PATH'], rows);
  await call.print(diff, () => (rows.length === 0 ? 'No changes.\n' : `${table}${total}`));
  if (diff.hasMore && !call.isJson) await call.note('There are more.');
}

async function printBytes(call: CommandCall, bytes: ReadableStream<Uint8Array>): Promise<void> {
  for await (const chunk of bytes) await call.io.stdout.write(chunk);
}

interface CommitOptions {
  readonly message: string;
  readonly author?: { readonly name: string; readonly email: string };
  readonly trailer?: { readonly name: string; readonly value: string }[];
}

function addCommit(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('commit'))
    .description('publish what a sandbox has changed as the next version, and print it')
    .argument('<sandbox>', 'id or name')
    .argument('<workspace>', 'id or name')
    .requiredOption('-m, --message <text>', 'why')
    .option('--author <author>', '"Name <address>"; without: your key', parseAuthor)
    .option('--trailer <name=value>', 'below the message; repeatable', parseTrailer)
    .action(
      actions.of<CommitOptions, [sandbox: string, workspace: string]>(async (call, sandbox, reference) => {
        const { message, author, trailer } = call.options;
        const done = await (await inSandbox(call, sandbox, reference)).commit(message, {
          ...(author && { author }),
          ...(trailer && { trailers: trailer }),
          ...call.conditions(),
        });
        await call.print(done, () =>
          done.version === null ? 'Nothing to commit.\n' : `${done.version.number} ${done.version.commit}\n`,
        );
        for (const path of call.isJson ? [] : done.leftOut) await call.note(`left out: ${path}`);
      }),
    );
}

function addUpdate(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('update'))
    .description('merge the newest version into the checkout of a sandbox')
    .argument('<sandbox>', 'id or name')
    .argument('<workspace>', 'id or name')
    .action(
      actions.of<object, [sandbox: string, workspace: string]>(async (call, sandbox, reference) => {
        const done = await (await inSandbox(call, sandbox, reference)).update(call.conditions());
        await call.print(done, () => `${done.attachment.base.number}, ${done.files} files changed\n`);
      }),
    );
}

function addDrop(workspace: Command, actions: Actions): void {
  withConditions(workspace.command('drop'))
    .description('put the checkout of a sandbox back to its base, as a whole')
    .argument('<sandbox>', 'id or name')
    .argument('<workspace>', 'id or name')
    .action(
      actions.of<object, [sandbox: string, workspace: string]>(async (call, sandbox, reference) => {
        const view: AttachmentView = await (await inSandbox(call, sandbox, reference)).drop(call.conditions());
        await call.print(view, () => `${view.base.number}\n`);
      }),
    );
}

async function inSandbox(call: CommandCall, sandbox: string, reference: string) {
  return (await call.sandbox(sandbox)).workspace(reference);
}
