/** Files of a sandbox, one verb each. Paths are absolute, or relative to /workspace. */
import { createReadStream } from 'node:fs';
import type { ChangedFile, FileEntry } from '../../sdk/index.ts';
import { parseCount } from '../argument-parsers.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';
import { Progress } from '../progress.ts';
import { readableBytes, readableFields, readableTable, readableWhen } from '../readable.ts';

interface Options {
  readonly user?: string;
  readonly depth?: number;
  readonly since?: string;
  readonly recursive?: boolean;
  readonly force?: boolean;
  readonly parents?: boolean;
  readonly append?: boolean;
  readonly mode?: string;
}
type One = [sandbox: string, path: string];
type Two = [sandbox: string, from: string, to: string];

export const addFiles: AddCommand = (program, actions) => {
  const files = program.command('files').description('look at and change the files of a sandbox');
  const verb = (name: string, description: string) =>
    files
      .command(name)
      .description(description)
      .argument('<sandbox>', 'id or name')
      .option('-u, --user <user>', 'with whose rights');

  verb('ls', 'what is in a directory')
    .argument('[path]', 'absolute, or relative to /workspace', '.')
    .option('-d, --depth <levels>', 'how deep', parseCount)
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const { depth } = call.options;
        const sandbox = await call.sandbox(name);
        const entries = await sandbox.files.list(path, {
          ...userOf(call.options),
          ...(depth !== undefined && { depth }),
        });
        await call.print({ items: entries }, () => tableOf(entries, call.io.nowMs()));
      }),
    );
  verb('changes', 'what differs from an earlier look; without one, a cursor to begin with')
    .argument('[path]', 'a directory', '.')
    .option('--since <cursor>', 'what the earlier look was answered with')
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const { since } = call.options;
        const { files } = await call.sandbox(name);
        const found = await files.changes(path, { ...userOf(call.options), ...(since !== undefined && { since }) });
        await call.print(found, () => (since === undefined ? `${found.cursor}\n` : changesText(found.changes)));
        if (since !== undefined && !call.isJson) await call.note(`The next time: --since ${found.cursor}`);
      }),
    );
  verb('cat', 'write a file to standard output')
    .argument('<path>')
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const { stream } = await (await call.sandbox(name)).files.open(path, userOf(call.options));
        for await (const chunk of stream) await call.io.stdout.write(chunk);
      }),
    );
  withIdempotencyKey(verb('put', 'write a local file, or standard input with "-", to a file'))
    .argument('<local>', 'a file here, or -')
    .argument('<path>')
    .option('--append', 'behind what is there')
    .option('--mode <octal>', 'such as 755')
    .action(
      actions.of<Options & { idempotencyKey?: string }, Two>(async (call, name, local, path) => {
        const { append, mode, idempotencyKey } = call.options;
        const sandbox = await call.sandbox(name);
        const progress = new Progress(call.io, { totalBytes: null, isQuiet: call.isJson });
        const source = local === '-' ? process.stdin : createReadStream(local);
        const options = {
          ...userOf(call.options),
          ...(mode !== undefined && { mode: parseMode(mode) }),
          ...(idempotencyKey !== undefined && { idempotencyKey }),
        };
        const data = progress.count(source as AsyncIterable<Uint8Array>);
        const entry = append
          ? await sandbox.files.append(path, data, options)
          : await sandbox.files.write(path, data, options);
        await call.print(entry, () => `${entry.path}\n`);
      }),
    );
  verb('stat', 'what a path is')
    .argument('<path>')
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const entry = await (await call.sandbox(name)).files.stat(path, {
          ...userOf(call.options),
          followLinks: false,
        });
        await call.print(entry, () => readableFields(fieldsOf(entry)));
      }),
    );
  withIdempotencyKey(verb('mkdir', 'make a directory'))
    .argument('<path>')
    .option('-p, --parents', 'also those above it; one that is there is no error')
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const { parents } = call.options;
        const sandbox = await call.sandbox(name);
        const entry = await sandbox.files.makeDirectory(path, {
          ...userOf(call.options),
          ...call.conditions(),
          ...(parents && { parents }),
        });
        await call.print(entry, () => `${entry.path}\n`);
      }),
    );
  withIdempotencyKey(verb('mv', 'give a file or directory another path'))
    .argument('<from>')
    .argument('<to>')
    .option('-f, --force', 'replace what is there')
    .action(
      actions.of<Options, Two>(async (call, name, from, to) => {
        const { force } = call.options;
        const sandbox = await call.sandbox(name);
        const entry = await sandbox.files.move(from, to, {
          ...userOf(call.options),
          ...call.conditions(),
          ...(force && { replace: true }),
        });
        await call.print(entry, () => `${entry.path}\n`);
      }),
    );
  withIdempotencyKey(verb('cp', 'copy within the sandbox'))
    .argument('<from>')
    .argument('<to>')
    .option('-r, --recursive', 'a directory with what is in it')
    .option('-f, --force', 'replace what is there')
    .action(
      actions.of<Options, Two>(async (call, name, from, to) => {
        const { force, recursive } = call.options;
        const sandbox = await call.sandbox(name);
        const options = {
          ...userOf(call.options),
          ...call.conditions(),
          ...(force && { replace: true }),
          ...(recursive && { recursive }),
        };
        const entry = await sandbox.files.copy(from, to, options);
        await call.print(entry, () => `${entry.path}\n`);
      }),
    );
  withIdempotencyKey(verb('rm', 'remove a file or directory'))
    .argument('<path>')
    .option('-r, --recursive', 'a directory with what is in it')
    .action(
      actions.of<Options, One>(async (call, name, path) => {
        const { recursive } = call.options;
        const sandbox = await call.sandbox(name);
        await sandbox.files.remove(path, {
          ...userOf(call.options),
          ...call.conditions(),
          ...(recursive && { recursive }),
        });
        await call.print({ path }, () => '');
      }),
    );
};

function userOf(options: Options): { readonly user?: string } {
  return options.user === undefined ? {} : { user: options.user };
}

function tableOf(entries: readonly FileEntry[], nowMs: number): string {
  const rows = entries.map((entry) => [
    entry.type,
    entry.mode.toString(8).padStart(3, '0'),
    `${entry.uid}:${entry.gid}`,
    entry.type === 'file' ? readableBytes(entry.sizeBytes) : '-',
    readableWhen(entry.modifiedAt.toISOString(), nowMs),
    entry.linkTarget === null ? entry.path : `${entry.path} -> ${entry.linkTarget}`,
  ]);
  return rows.length === 0 ? '' : readableTable(['TYPE', 'MODE', 'OWNER', 'SIZE', 'CHANGED', 'PATH'], rows);
}

function changesText(changes: readonly ChangedFile[]): string {
  return changes.map(({ kind, path }) => `${kind.padEnd('modified'.length)} ${path}\n`).join('');
}

function fieldsOf(entry: FileEntry): (readonly [string, string])[] {
  return [
    ['path', entry.path],
    ['type', entry.type],
    ['size', String(entry.sizeBytes)],
    ['mode', entry.mode.toString(8).padStart(3, '0')],
    ['owner', `${entry.uid}:${entry.gid}`],
    ['changed', entry.modifiedAt.toISOString()],
    ['etag', entry.etag],
    ...(entry.linkTarget === null ? [] : [['leads to', entry.linkTarget] as const]),
  ];
}

function parseMode(text: string): number {
  if (/^[0-7]{3,4}$/.test(text)) return Number.parseInt(text, 8);
  throw new CliError(`"${text}" is no mode.`, {
    exitCode: exitCodes.usage,
    code: 'usage',
    hint: 'For example: --mode 755',
  });
}
