/** Workspaces: versioned trees that sandboxes attach and publish to. What sandboxes do with them is in workspace-sandbox.ts. */
import { resolve } from 'node:path';
import type { Command } from 'commander';
import { rememberImport } from '../../checkout/index.ts';
import type { Conditions } from '../../protocol/index.ts';
import type { WorkspaceVersionView, WorkspaceView } from '../../sdk/index.ts';
import { parseCount } from '../argument-parsers.ts';
import { stateDirectory } from '../checkout-call.ts';
import { type Actions, type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { noteMore, type PageOptions, pageOf, withPages } from '../page-options.ts';
import { Progress } from '../progress.ts';
import { readableFields, readableTable, readableWhen } from '../readable.ts';
import { SentBytes } from '../sent-bytes.ts';
import { isRemote, openContent, saveContent } from '../workspace-content.ts';
import { addSandboxWorkspace } from './workspace-sandbox.ts';

interface RemoteOptions {
  readonly ref?: string;
  readonly user?: string;
}

export const addWorkspace: AddCommand = (program, actions) => {
  const workspace = program.command('workspace').description('versioned trees that sandboxes attach and publish to');
  addCreate(workspace, actions);
  addList(workspace, actions);
  addInfo(workspace, actions);
  addImport(workspace, actions);
  addExport(workspace, actions);
  addLog(workspace, actions);
  addRevert(workspace, actions);
  addRemove(workspace, actions);
  addSandboxWorkspace(workspace, actions);
};

function addCreate(workspace: Command, actions: Actions): void {
  withIdempotencyKey(workspace.command('create'))
    .description('make one and print its id')
    .argument('<name>', 'unique in the team')
    .argument('[source]', 'its first version: a directory, repository, bundle, archive or git URL; without: empty')
    .option('--ref <ref>', 'of a bundle or remote: which branch or tag')
    .option('--user <name>', 'for the remote; its password is in ATOLL_GIT_PASSWORD')
    .option('--files-only', 'of a repository: its files as they are, without history')
    .option('--message <text>', 'of a version that has none')
    .action(
      actions.of<ImportOptions, [name: string, source?: string]>(async (call, name, source) => {
        const { workspaces } = await call.client();
        const content = source === undefined ? 'empty' : 'none';
        const made = await workspaces.create(name, { content, ...call.conditions() });
        if (source !== undefined) await importFrom(call, made.id, source, {});
        const view = await workspaces.get(made.id);
        await call.print(view, () => `${view.id}\n`);
      }),
    );
}

function addList(workspace: Command, actions: Actions): void {
  withPages(workspace.command('ls', { isDefault: true }))
    .description('list them, newest first')
    .action(
      actions.of<PageOptions, []>(async (call) => {
        const page = await (await call.client()).workspaces.list(pageOf(call.options));
        const nowMs = call.io.nowMs();
        const rows = page.items.map((view) => [
          ...[view.id, view.name, view.head === null ? '-' : String(view.head.number)],
          ...[readableWhen(view.updatedAt, nowMs), readableWhen(view.createdAt, nowMs)],
        ]);
        const heads = ['ID', 'NAME', 'VERSION', 'CHANGED', 'CREATED'];
        await call.print(page, () => (rows.length === 0 ? 'No workspaces.\n' : readableTable(heads, rows)));
        await noteMore(call, page);
      }),
    );
}

function addInfo(workspace: Command, actions: Actions): void {
  workspace
    .command('info')
    .description('show one, and the sandboxes that have it')
    .argument('<workspace>', 'id or name')
    .action(
      actions.of<object, [workspace: string]>(async (call, reference) => {
        const view = await (await call.client()).workspaces.get(reference);
        await call.print(view, () => {
          const rows = view.attachments.map((one) => [
            ...[one.sandboxId, one.path, String(one.base.number), one.isCurrent ? 'yes' : 'no'],
          ]);
          const table = readableTable(['SANDBOX', 'PATH', 'BASE', 'CURRENT'], rows);
          return `${describe(view, call.io.nowMs())}${rows.length === 0 ? '' : `\n${table}`}`;
        });
      }),
    );
}

interface ImportOptions extends RemoteOptions {
  readonly filesOnly?: boolean;
  readonly message?: string;
}

function addImport(workspace: Command, actions: Actions): void {
  withIdempotencyKey(workspace.command('import'))
    .description('add the next version from this machine or a git remote')
    .argument('<workspace>', 'id or name')
    .argument('<source>', 'a directory, repository, bundle, archive or git URL')
    .option('--ref <ref>', 'of a bundle or remote: which branch or tag')
    .option('--user <name>', 'for the remote; its password is in ATOLL_GIT_PASSWORD')
    .option('--files-only', 'of a repository: its files as they are, without history')
    .option('--message <text>', 'of a version that has none')
    .action(
      actions.of<ImportOptions, [workspace: string, source: string]>(async (call, reference, source) => {
        const version = await importFrom(call, reference, source, call.conditions());
        await call.print(version, () => `${version.number} ${version.commit}\n`);
      }),
    );
}

async function importFrom(
  call: CommandCall<ImportOptions>,
  reference: string,
  source: string,
  conditions: Conditions,
): Promise<WorkspaceVersionView> {
  const { workspaces } = await call.client();
  const { ref, message, filesOnly = false } = call.options;
  if (isRemote(source)) return await workspaces.importRemote(reference, remoteOf(call, source), conditions);
  const content = await openContent(source, { filesOnly });
  const progress = new Progress(call.io, { totalBytes: content.totalBytes, isQuiet: call.isJson });
  const sent = new SentBytes(progress.count(content.bytes));
  const version = await sent.orWhy(
    workspaces.import(reference, sent.bytes(), {
      kind: content.kind,
      ...(ref !== undefined && { ref }),
      ...(message !== undefined && { message }),
      ...conditions,
    }),
  );
  if (content.isDirectory) {
    // Where a plan's result for it goes, unless somebody says otherwise.
    const { id } = await workspaces.get(reference);
    await rememberImport(stateDirectory(call), id, { path: resolve(call.io.cwd, source), env: call.io.env });
  }
  return version;
}

/** A password is never among the words: others on this machine can read those. */
function remoteOf(call: CommandCall<RemoteOptions>, url: string) {
  const { ref, user } = call.options;
  const password = call.io.env['ATOLL_GIT_PASSWORD'];
  return {
    url,
    ...(ref !== undefined && { ref }),
    ...(user !== undefined && { credentials: { username: user, password: password ?? '' } }),
  };
}

interface ExportOptions extends RemoteOptions {
  readonly at?: number;
  readonly bundle?: boolean;
}

function addExport(workspace: Command, actions: Actions): void {
  withIdempotencyKey(workspace.command('export'))
    .description('write a version to a directory, a file or a git remote')
    .argument('<workspace>', 'id or name')
    .argument('<target>', 'a directory (its files), a file that is not there (.bundle, or a tar), "-", or a git URL')
    .option('--at <number>', 'this version, not the newest', parseCount)
    .option('--bundle', 'a git bundle, whatever the name of the file')
    .option('--ref <branch>', 'of a remote: the branch to move')
    .option('--user <name>', 'for the remote; its password is in ATOLL_GIT_PASSWORD')
    .action(
      actions.of<ExportOptions, [workspace: string, target: string]>(async (call, reference, target) => {
        const { at } = call.options;
        const { workspaces } = await call.client();
        const which = at === undefined ? {} : { version: at };
        if (isRemote(target)) {
          const pushed = await workspaces.push(reference, { ...remoteOf(call, target), ...which }, call.conditions());
          await call.print(pushed, () => `${pushed.number} ${pushed.commit}\n`);
          return;
        }
        const isBundle = call.options.bundle === true || target.endsWith('.bundle');
        const isDirectory = !isBundle && target !== '-' && !/\.tar$/.test(target);
        const kind = isBundle ? ('bundle' as const) : ('archive' as const);
        const progress = new Progress(call.io, { totalBytes: null, isQuiet: call.isJson });
        const bytes = progress.count(await workspaces.export(reference, { kind, ...which }));
        if (target === '-') {
          for await (const chunk of bytes) await call.io.stdout.write(chunk);
          return;
        }
        await saveContent(target, { kind, bytes, isDirectory });
        await call.print({ exported: reference, to: target, bytes: progress.bytes }, () => '');
      }),
    );
}

function addLog(workspace: Command, actions: Actions): void {
  workspace
    .command('log')
    .description('list its versions, newest first')
    .argument('<workspace>', 'id or name')
    .option('--limit <count>', 'of one page', parseCount)
    .option('--before <number>', 'the next page', parseCount)
    .action(
      actions.of<{ readonly limit?: number; readonly before?: number }, [workspace: string]>(
        async (call, reference) => {
          const { limit, before } = call.options;
          const page = await (await call.client()).workspaces.versions(reference, {
            ...(limit !== undefined && { limit }),
            ...(before !== undefined && { before }),
          });
          const nowMs = call.io.nowMs();
          const rows = page.items.map((one) => [
            ...[String(one.number), one.commit.slice(0, 12), one.kind, one.author],
            ...[readableWhen(one.createdAt, nowMs), one.summary],
          ]);
          const heads = ['VERSION', 'COMMIT', 'KIND', 'AUTHOR', 'WHEN', 'SUMMARY'];
          await call.print(page, () => (rows.length === 0 ? 'No versions.\n' : readableTable(heads, rows)));
          if (page.nextBefore !== null && !call.isJson) await call.note(`There are more: --before ${page.nextBefore}`);
        },
      ),
    );
}

function addRevert(workspace: Command, actions: Actions): void {
  withIdempotencyKey(workspace.command('revert'))
    .description('add a version that equals an earlier one')
    .argument('<workspace>', 'id or name')
    .argument('<version>', 'its number', parseCount)
    .option('--message <text>', 'in place of our own')
    .action(
      actions.of<{ readonly message?: string }, [workspace: string, version: number]>(
        async (call, reference, version) => {
          const { message } = call.options;
          const body = { version, ...(message !== undefined && { message }) };
          const made = await (await call.client()).workspaces.revert(reference, body, call.conditions());
          await call.print(made, () => `${made.number} ${made.commit}\n`);
        },
      ),
    );
}

function addRemove(workspace: Command, actions: Actions): void {
  withIdempotencyKey(workspace.command('rm'))
    .description('delete some, with all their versions')
    .argument('<workspace...>', 'ids or names')
    .action(
      actions.of<object, [workspaces: string[]]>(async (call, references) => {
        const { workspaces } = await call.client();
        for (const reference of references) await workspaces.delete(reference, call.conditions());
        await call.print({ deleted: references }, () => '');
      }),
    );
}

function describe(view: WorkspaceView, nowMs: number): string {
  return readableFields([
    ['id', view.id],
    ['name', view.name],
    ['state', view.state],
    ['version', view.head === null ? '-' : `${view.head.number} (${view.head.commit})`],
    ['changed', readableWhen(view.updatedAt, nowMs)],
    ['created', readableWhen(view.createdAt, nowMs)],
    ['node', view.nodeId],
  ]);
}
