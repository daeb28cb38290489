/** Copies between this machine and a sandbox, files and whole directories, as cp does it: into a directory that is there, or under a new name. */
import { createReadStream, createWriteStream, type Stats } from 'node:fs';
import { mkdir, stat } from 'node:fs/promises';
import { basename, join, posix } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type FileEntry, isPlatformError, type Sandbox } from '../../sdk/index.ts';
import { CliError } from '../cli-error.ts';
import { type AddCommand, withIdempotencyKey } from '../command-adder.ts';
import type { CommandCall } from '../command-call.ts';
import { exitCodes } from '../exit-codes.ts';
import { packDirectory, unpackDirectory } from '../local-tar.ts';
import { Progress } from '../progress.ts';
import { readableBytes } from '../readable.ts';
import { SentBytes } from '../sent-bytes.ts';

interface Options {
  readonly user?: string;
}

export const addCp: AddCommand = (program, actions) => {
  withIdempotencyKey(program.command('cp'))
    .description('copy files and directories between this machine and a sandbox')
    .usage('[options] <local> <sandbox>:<path> | <sandbox>:<path> <local>')
    .argument('<from>', 'a path here, or sandbox:path')
    .argument('<to>', 'the other one')
    .option('-u, --user <user>', 'with whose rights in the sandbox')
    .action(
      actions.of<Options, [from: string, to: string]>(async (call, from, to) => {
        const source = remoteOf(from);
        const target = remoteOf(to);
        if ((source === undefined) === (target === undefined)) throw oneOfThem();
        const done = target === undefined ? await download(call, source!, to) : await upload(call, from, target);
        await call.print(done, () => '');
        if (!call.isJson) await call.note(`${done.from} -> ${done.to} (${readableBytes(done.bytes)})`);
      }),
    );
};

interface Remote {
  readonly sandbox: string;
  readonly path: string;
}
interface Done {
  readonly from: string;
  readonly to: string;
  readonly bytes: number;
}

/** A colon before any slash makes it remote; a local name with one is written ./name:part. */
export function remoteOf(text: string): Remote | undefined {
  const found = /^([^/:.][^/:]*):(.*)$/s.exec(text);
  return found === null ? undefined : { sandbox: found[1]!, path: found[2] === '' ? '.' : found[2]! };
}

async function upload(call: CommandCall<Options>, local: string, remote: Remote): Promise<Done> {
  const sandbox = await call.sandbox(remote.sandbox);
  const from = await statHere(local);
  if (from === undefined) throw noSuchFile(local);
  const at = await findThere(sandbox, remote.path, call.options);
  const into = at?.type === 'directory' || remote.path.endsWith('/');
  const to = into ? posix.join(remote.path, basename(join(process.cwd(), local))) : remote.path;
  const progress = new Progress(call.io, { totalBytes: from.isFile() ? from.size : null, isQuiet: call.isJson });
  const options = { ...userOf(call.options), ...call.conditions() };
  if (from.isDirectory()) {
    const sent = new SentBytes(progress.count(packDirectory(local)));
    await sent.orWhy(sandbox.files.upload(to, sent.bytes(), options));
  } else if (from.isFile()) {
    const sent = new SentBytes(progress.count(createReadStream(local) as AsyncIterable<Uint8Array>));
    await sent.orWhy(sandbox.files.write(to, sent.bytes(), { ...options, mode: from.mode & 0o777 }));
  } else throw noSuchFile(local);
  return { from: local, to: `${remote.sandbox}:${to}`, bytes: progress.bytes };
}

async function download(call: CommandCall<Options>, remote: Remote, local: string): Promise<Done> {
  const sandbox = await call.sandbox(remote.sandbox);
  const from = await sandbox.files.stat(remote.path, userOf(call.options));
  const here = await statHere(local);
  const name = posix.basename(from.path);
  const to = here?.isDirectory() && name !== '' ? join(local, name) : local;
  const totalBytes = from.type === 'file' ? from.sizeBytes : null;
  const progress = new Progress(call.io, { totalBytes, isQuiet: call.isJson });
  if (from.type === 'directory') {
    const tar = await sandbox.files.download(remote.path, userOf(call.options));
    await mkdir(to, { recursive: true });
    await unpackDirectory(to, progress.count(tar));
  } else {
    const { stream, mode } = await sandbox.files.open(remote.path, userOf(call.options));
    await pipeline(Readable.from(progress.count(stream)), createWriteStream(to, { mode: mode & 0o777 }));
  }
  return { from: `${remote.sandbox}:${remote.path}`, to, bytes: progress.bytes };
}

async function findThere(sandbox: Sandbox, path: string, options: Options): Promise<FileEntry | undefined> {
  try {
    return await sandbox.files.stat(path, userOf(options));
  } catch (error) {
    if (isPlatformError(error, 'file_not_found')) return undefined;
    throw error;
  }
}

async function statHere(path: string): Promise<Stats | undefined> {
  return await stat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw new CliError(`Cannot look at ${path}: ${error.message}.`, {
      exitCode: exitCodes.notFound,
      code: 'local_file',
      hint: '',
    });
  });
}

function userOf(options: Options): { readonly user?: string } {
  return options.user === undefined ? {} : { user: options.user };
}

function noSuchFile(path: string): CliError {
  const hint = 'Give a file or a directory.';
  return new CliError(`There is no file or directory ${path} here.`, {
    exitCode: exitCodes.notFound,
    code: 'local_file',
    hint,
  });
}

function oneOfThem(): CliError {
  return new CliError('Exactly one of both is in a sandbox.', {
    exitCode: exitCodes.usage,
    code: 'usage',
    hint: 'For example: atoll cp ./app SANDBOX:/workspace/app, or: atoll cp SANDBOX:out.txt .',
  });
}
