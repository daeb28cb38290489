/** Packs between repositories. A pack that comes from outside is checked object by object and bounded before anything refers to it. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { open, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isPlatformError, PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall, userCall } from './checkout.ts';
import { git } from './git-process.ts';
import type { SyncLimits } from './options.ts';

export interface Pack {
  readonly path: string;
  readonly bytes: number;
}

const headerBytes = 12;
/** Of one pack that comes from outside: each costs memory before anything can be said about it. */
const objectsMax = 5_000_000;
/** Tables of git's own. */
const allocationRoomBytes = 64 * 1024 * 1024;

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

/** How many objects its header says that it holds. */
export async function objectsIn(pack: Pack): Promise<number> {
  const file = await open(pack.path, 'r');
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(headerBytes), 0, headerBytes, 0);
    return bytesRead === headerBytes && buffer.toString('latin1', 0, 4) === 'PACK' ? buffer.readUInt32BE(8) : 0;
  } finally {
    await file.close();
  }
}

/**
 * Takes a sandbox's pack into the shadow. The answer removes it again, for when what it holds turns out to be refused: nobody can fill this disk by
 * being refused again and again.
 */
export async function takePack(
  checkout: Checkout,
  pack: Pack,
  options: { readonly limits: SyncLimits; readonly signal?: AbortSignal },
): Promise<() => Promise<void>> {
  const { limits, signal } = options;
  const objects = await objectsIn(pack);
  if (objects > objectsMax) throw noGoodPack(`it says that it has ${objects} objects.`);
  const folder = join(checkout.shadow, 'objects/pack');
  const before = new Set(await readdir(folder).catch(() => []));
  // No object is larger than a file may be, whatever a few bytes of delta claim to unfold to.
  const env = { GIT_ALLOC_LIMIT: String(limits.fileBytes + allocationRoomBytes) };
  const words = ['index-pack', '--stdin', '--fix-thin', '--strict', `--max-input-size=${limits.totalBytes}`];
  try {
    await git(words, shadowCall(checkout, { stdinPath: pack.path, env, ...(signal && { signal }) }));
  } catch (cause) {
    if (!isPlatformError(cause)) throw cause;
    throw noGoodPack(cause.message, cause);
  }
  return async () => {
    const come = (await readdir(folder)).filter((name) => !before.has(name));
    for (const name of come) await rm(join(folder, name), { force: true });
  };
}

function noGoodPack(why: string, cause?: unknown): PlatformError {
  return new PlatformError('sync_unsafe', `What the sandbox sent is no good pack: ${why}`, { cause });
}

/** Copies objects from the shadow to the user's repository, where refs are about to name them. */
export async function giveToUser(
  checkout: Checkout,
  wanted: readonly string[],
  known: readonly string[],
): Promise<void> {
  const pack = await makePack(checkout, { wanted, known });
  try {
    // A shadow's path must not be what makes an object known to the user's repository.
    await git(['index-pack', '--stdin', '--fix-thin'], userCall(checkout, { stdinPath: pack.path }));
  } finally {
    await rm(pack.path, { force: true });
  }
}
