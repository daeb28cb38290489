/**
 * The folder in which an apply prepares what it is to write, and keeps what it replaces: on the file system of the working tree, so that a name
 * changes hands by one rename or link.
 */
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../../base/index.ts';
import { placeOf } from './apply-step.ts';
import { type Checkout, shadowCall, stagingPrefix } from './checkout.ts';
import { find, isEntry } from './disk-entries.ts';
import { git } from './git-process.ts';
import { sizesOfBlobs, type TreeChange } from './trees.ts';

/** How much content is read from git at once. */
const batchBytes = 32 * 1024 * 1024;
const folderName = new RegExp(`^\\${stagingPrefix}[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`);

export async function makeStaging(checkout: Checkout): Promise<string> {
  const { gitDirectory, root } = checkout;
  const isNear = gitDirectory !== undefined && (await stat(gitDirectory)).dev === (await stat(root)).dev;
  const folder = join(isNear ? gitDirectory : root, `${stagingPrefix}${randomUUID()}`);
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/** Writes the content of these steps into the folder; what lies there and is not the content that it should be is written again. */
export async function stage(
  checkout: Checkout,
  staging: string,
  steps: readonly { readonly index: number; readonly change: TreeChange }[],
): Promise<void> {
  const written = steps.flatMap(({ index, change: { to } }) => (to === null ? [] : [{ index, ...to }]));
  const ids = written.map(({ id }) => id);
  const sizes = await sizesOfBlobs(checkout, ids);
  for (let at = 0; at < written.length; ) {
    const part: typeof written = [];
    for (let bytes = 0; at < written.length && (part.length === 0 || bytes < batchBytes); at++) {
      part.push(written[at]!);
      bytes += sizes.get(written[at]!.id) ?? 0;
    }
    const stdin = `${part.map(({ id }) => id).join('\n')}\n`;
    const { stdout } = await git(['cat-file', '--batch'], shadowCall(checkout, { stdin }));
    let offset = 0;
    for (const { index, mode, id } of part) {
      const end = stdout.indexOf(10, offset);
      const [name, type, size] = stdout.toString('latin1', offset, end).split(' ');
      assert(name === id && type === 'blob');
      const content = stdout.subarray(end + 1, end + 1 + Number(size));
      offset = end + 2 + Number(size);
      await stageOne(placeOf({ staging, index }, ''), mode, content);
    }
  }
}

/** After a crash of the machine a prepared file may be there without its content. */
export async function stageAgain(checkout: Checkout, staging: string, steps: readonly TreeChange[]): Promise<void> {
  const torn = steps.flatMap((change, index) => {
    const path = placeOf({ staging, index }, '');
    return change.to === null || find(path) === undefined || isEntry(path, change.to) ? [] : [{ index, change }];
  });
  for (const { index } of torn) await rm(placeOf({ staging, index }, ''), { force: true });
  if (torn.length > 0) await stage(checkout, staging, torn);
}

/** Without a journal a staging folder is what a killed process had prepared and not begun. */
export async function removeStaging({ gitDirectory, root }: Checkout): Promise<void> {
  for (const folder of gitDirectory === undefined ? [root] : [root, gitDirectory]) {
    const left = (await readdir(folder)).filter((name) => folderName.test(name));
    for (const name of left) await rm(join(folder, name), { recursive: true, force: true });
  }
}

async function stageOne(path: string, mode: string, content: Buffer): Promise<void> {
  if (mode === '120000') return await symlink(content, path);
  await writeFile(path, content, { mode: 0o666, flag: 'wx' });
  if (mode === '100755') await chmod(path, 0o777 & ~process.umask());
}
