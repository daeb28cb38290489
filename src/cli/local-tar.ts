/**
 * Directories of this machine as tar streams, through its own `tar`. What comes out of a sandbox is hostile: tar refuses names that leave the
 * directory and links that lead out of it, and owners in the archive mean nothing here.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { CliError } from './cli-error.ts';
import { exitCodes } from './exit-codes.ts';

const saidMax = 2_000;

/** What is in a directory, names relative to it. */
export async function* packDirectory(directory: string): AsyncGenerator<Uint8Array, void> {
  yield* packed(['-cf', '-', '-C', directory, '.']);
}

async function* packed(words: readonly string[]): AsyncGenerator<Uint8Array, void> {
  const tar = spawn('tar', words, { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = endOf(tar);
  try {
    yield* tar.stdout as AsyncIterable<Buffer>;
    await ended;
  } finally {
    tar.kill();
  }
}

/** Some paths below a directory, as they are, the same bytes for the same files: owners and the order of names mean nothing. */
export async function* packPaths(directory: string, paths: readonly string[]): AsyncGenerator<Uint8Array, void> {
  const form = ['--sort=name', '--owner=0', '--group=0', '--numeric-owner', '--format=gnu'];
  yield* packed(['-cf', '-', ...form, '-C', directory, '--', ...paths]);
}

export async function unpackDirectory(directory: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
  const words = ['-xf', '-', '-C', directory, '--no-same-owner'];
  const tar = spawn('tar', words, { stdio: ['pipe', 'ignore', 'pipe'] });
  const ended = endOf(tar);
  // One that ends early says why on stderr; its broken pipe says nothing.
  tar.stdin.on('error', () => {});
  try {
    for await (const chunk of chunks) {
      if (tar.stdin.destroyed) break;
      if (!tar.stdin.write(chunk)) await roomIn(tar.stdin);
    }
    tar.stdin.end();
    await ended;
  } finally {
    tar.kill();
  }
}

/** Also when it is over: what is written then is dropped, and its end tells why. */
function roomIn(stdin: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      stdin.off('drain', done).off('close', done);
      resolve();
    };
    stdin.on('drain', done).on('close', done);
    if (stdin.destroyed) done();
  });
}

/** Rejects with what tar said. It may be over long before anybody asks, which is no failure of its own. */
function endOf(tar: ChildProcess): Promise<void> {
  const ended = ending(tar);
  ended.catch(() => {});
  return ended;
}

async function ending(tar: ChildProcess): Promise<void> {
  let said = '';
  tar.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-saidMax);
  });
  const [code] = (await once(tar, 'close').catch((error: Error) => [error.message])) as [number | string | null];
  if (code === 0) return;
  throw new CliError(`tar failed on this machine: ${said.trim() || code}`, {
    exitCode: exitCodes.refused,
    code: 'tar_failed',
    hint: 'Copying directories needs the program tar here.',
  });
}
