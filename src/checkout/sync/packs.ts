/** Packs between repositories. A pack that comes from outside is checked object by object and bounded before anything refers to it. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, userCall } from './checkout.ts';
import { git } from './git-process.ts';

export interface Pack {
  readonly path: string;
  readonly bytes: number;
}

/** Everything that is reachable from `wanted` and not from `known`, as a file. */
export async function makePack(
  checkout: Checkout,
  revisions: { readonly wanted: readonly string[]; readonly known: readonly string[] },
  onBytes: (bytes: number) => void = () => {},
): Promise<Pack> {
  const path = join(checkout.directory, 'pack.out');
  const file = openSync(path, 'w', 0o600);
  let bytes = 0;
  try {
    const stdin = `${[...revisions.wanted, ...revisions.known.map((id) => `^${id}`)].join('\n')}\n`;
    const onStdout = (chunk: Buffer) => {
      writeSync(file, chunk);
      bytes += chunk.length;
      onBytes(bytes);
    };
    const words = ['pack-objects', '-q', '--revs', '--thin', '--stdout', '--delta-base-offset'];
    await git(words, shadowCall(checkout, { stdin, onStdout }));
  } finally {
    closeSync(file);
  }
  return { path, bytes };
}

/** Takes a sandbox's pack into the shadow. */
export async function takePack(checkout: Checkout, pack: Uint8Array | Readable, limitBytes: number): Promise<void> {
  try {
    const words = ['index-pack', '--stdin', '--fix-thin', '--strict', `--max-input-size=${limitBytes}`];
    await git(words, shadowCall(checkout, { stdin: pack }));
  } catch (cause) {
    throw new PlatformError('sync_unsafe', `What the sandbox sent is no good pack: ${(cause as Error).message}`, {
      cause,
    });
  }
}

/** Copies objects from the shadow to the user's repository, where refs are about to name them. */
export async function giveToUser(
  checkout: Checkout,
  wanted: readonly string[],
  known: readonly string[],
): Promise<void> {
  const pack = await makePack(checkout, { wanted, known });
  const stdin = await readFile(pack.path);
  await rm(pack.path, { force: true });
  // A shadow's path must not be what makes an object known to the user's repository.
  await git(['index-pack', '--stdin', '--fix-thin'], userCall(checkout, { stdin }));
}
