/**
 * The folder in which an apply prepares what it is to write, and keeps what it replaces: on the file system of the working tree, so that a name
 * changes hands by one rename or link.
 */
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { placeOf } from './apply-step.ts';
import { type Checkout, stagingPrefix } from './checkout.ts';
import { find, isEntry } from './disk-entries.ts';
import { eachBlob, type TreeChange } from './trees.ts';

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
  await eachBlob(checkout, written, ({ index, mode }, content) =>
    stageOne(placeOf({ staging, index }, ''), mode, content),
  );
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
