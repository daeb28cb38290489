/**
 * A directory without git that is named by a symlink can be exchanged whole: the changes are made in a copy beside it, and the symlink is renamed
 * over. Whoever follows it sees the directory before or after, and nothing between. The directory before stays until the record expires.
 */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { lstat, readdir, readlink, rename, rm, symlink } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { syncDirectory } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { planStagingPrefix } from '../sync/checkout.ts';

export interface Flip {
  readonly link: string;
  /** What the symlink says, before and after. */
  readonly fromText: string;
  readonly toText: string;
  readonly from: string;
  readonly to: string;
  /** Change whenever something in the directory does. */
  readonly fromStamp: string;
  readonly toStamp: string;
}

export async function planFlip(link: string, from: string, id: string): Promise<Flip> {
  const fromText = await readlink(link);
  const to = join(
    dirname(from),
    `${planStagingPrefix}${id}-${basename(from).replace(/^\.atoll-sync-plan-[0-9a-f-]+-/, '')}`,
  );
  const toText = fromText.startsWith('/') ? to : join(dirname(fromText), basename(to));
  return { link, from, to, fromText, toText, fromStamp: await treeStamp(from), toStamp: '' };
}

/** With owners, times and everything else that a file has. */
export async function copyTree({ from, to }: Flip): Promise<void> {
  await rm(to, { recursive: true, force: true });
  await promisify(execFile)('cp', ['-a', '--', from, to]).catch((cause: Error & { readonly stderr?: string }) => {
    throw new PlatformError('sync_failed', `${from} could not be copied: ${(cause.stderr ?? cause.message).trim()}`, {
      cause,
    });
  });
}

/** Answers what is in the way, or undefined when the symlink leads to the new directory. */
export async function doFlip(flip: Flip): Promise<string | undefined> {
  const { link, fromText, toText, from, fromStamp } = flip;
  const text = await readlink(link).catch(() => undefined);
  if (text === toText) return undefined;
  if (text !== fromText) return `${link} leads elsewhere now.`;
  if ((await treeStamp(from)) !== fromStamp) return `Files in ${from} were changed meanwhile.`;
  const fresh = join(dirname(link), `${planStagingPrefix}link-${basename(link)}`);
  await rm(fresh, { force: true });
  await symlink(toText, fresh);
  await rename(fresh, link);
  await syncDirectory(dirname(link));
  return undefined;
}

/** Removes a directory that was made here, unless the symlink leads to it. One that somebody else made stays. */
export async function discardCopy(link: string, directory: string): Promise<void> {
  const text = await readlink(link).catch(() => '');
  if (basename(text) === basename(directory) || !basename(directory).startsWith(planStagingPrefix)) return;
  await rm(directory, { recursive: true, force: true });
}

export async function treeStamp(directory: string): Promise<string> {
  const hash = createHash('sha256');
  await addTree(hash, Buffer.from(directory));
  return hash.digest('hex');
}

async function addTree(hash: ReturnType<typeof createHash>, directory: Buffer): Promise<void> {
  const names = (await readdir(directory, { encoding: 'buffer' })).sort(Buffer.compare);
  for (const name of names) {
    const path = Buffer.concat([directory, Buffer.from('/'), name]);
    const { ino, mode, size, mtimeNs, uid, gid } = await lstat(path, { bigint: true });
    const isDirectory = (mode & 0o170000n) === 0o040000n;
    hash.update(path).update(`\0${ino} ${mode} ${isDirectory ? '' : `${size} ${mtimeNs}`} ${uid} ${gid}\n`);
    if (isDirectory) await addTree(hash, path);
  }
}
