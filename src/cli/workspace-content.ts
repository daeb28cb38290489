/** What goes into a workspace from this machine, and out of one to it: a directory, a repository, a bundle, an archive, a remote. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { CliError } from './cli-error.ts';
import { exitCodes } from './exit-codes.ts';
import { packDirectory, unpackDirectory } from './local-tar.ts';

export type LocalContent = {
  readonly kind: 'bundle' | 'archive';
  readonly bytes: AsyncIterable<Uint8Array>;
  /** null: not known before. */
  readonly totalBytes: number | null;
  readonly isDirectory: boolean;
};

const bundleHead = '# v';
const saidMax = 2_000;

/** Of git's own kinds; anything with a scheme, or `host:path`, is no path here. */
export function isRemote(source: string): boolean {
  return /^[a-z][a-z0-9+.-]*:\/\//i.test(source);
}

/** A directory that is a repository comes with its history, unless only its files are wanted. */
export async function openContent(source: string, options: { readonly filesOnly: boolean }): Promise<LocalContent> {
  const facts = await stat(source).catch(() => undefined);
  if (facts?.isDirectory()) {
    const isRepository = (await stat(join(source, '.git')).catch(() => undefined)) !== undefined;
    if (isRepository && !options.filesOnly)
      return { kind: 'bundle', bytes: bundleOf(source), totalBytes: null, isDirectory: true };
    return { kind: 'archive', bytes: packDirectory(source), totalBytes: null, isDirectory: true };
  }
  if (!facts?.isFile()) throw noContent(source);
  const file = await open(source);
  const { buffer } = await file.read(Buffer.alloc(bundleHead.length), 0, bundleHead.length, 0);
  await file.close();
  const kind = buffer.toString('latin1') === bundleHead ? 'bundle' : 'archive';
  return {
    kind,
    bytes: createReadStream(source) as AsyncIterable<Uint8Array>,
    totalBytes: facts.size,
    isDirectory: false,
  };
}

/** Into a directory, which is made, or a file, which must not be there. */
export async function saveContent(
  target: string,
  content: {
    readonly kind: 'bundle' | 'archive';
    readonly bytes: AsyncIterable<Uint8Array>;
    readonly isDirectory: boolean;
  },
): Promise<void> {
  if (content.isDirectory) {
    await mkdir(target, { recursive: true });
    await unpackDirectory(target, content.bytes);
    return;
  }
  await pipeline(Readable.from(content.bytes), createWriteStream(target, { flags: 'wx' }));
}

/** What HEAD leads to, through the user's own git. */
async function* bundleOf(directory: string): AsyncGenerator<Uint8Array, void> {
  const words = ['-C', directory, 'bundle', 'create', '--quiet', '-', 'HEAD'];
  const git = spawn('git', words, { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  git.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-saidMax);
  });
  const ended = once(git, 'close').catch((error: Error) => [error.message]) as Promise<[number | string | null]>;
  try {
    yield* git.stdout as AsyncIterable<Buffer>;
    const [code] = await ended;
    if (code !== 0) throw gitFailed(said.trim() || String(code));
  } finally {
    git.kill();
  }
}

function gitFailed(said: string): CliError {
  return new CliError(`git failed on this machine: ${said}`, {
    exitCode: exitCodes.refused,
    code: 'git_failed',
    hint: 'A repository is imported with its history through git; --files-only imports its files as they are.',
  });
}

function noContent(source: string): CliError {
  return new CliError(`There is no file or directory ${source} here.`, {
    exitCode: exitCodes.notFound,
    code: 'local_file',
    hint: 'Give a directory, a git bundle, a tar archive, or the URL of a git remote.',
  });
}
