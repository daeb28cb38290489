/** The folders beside a target in which everything lies ready before the decision, on the same file systems as what it becomes. */
import { chmod, chown, lstat, mkdir, open, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { AtMost, syncDirectory } from '../../base/index.ts';

import { type Checkout, planStagingPrefix } from '../sync/checkout.ts';
import { stage } from '../sync/staging.ts';
import type { JournalTarget } from './journal.ts';

const syncsAtOnce = 16;

/** Where the folders of a target will be; nothing is made. */
export async function stagingOf(
  checkout: Checkout,
  name: string,
  hasFiles: boolean,
): Promise<Pick<JournalTarget, 'staging' | 'gitStaging'>> {
  const folder = `${planStagingPrefix}${name}`;
  const { root, gitDirectory } = checkout;
  const gitStaging = gitDirectory === undefined ? null : join(gitDirectory, folder);
  if (!hasFiles) return { staging: null, gitStaging };
  const isNear = gitDirectory !== undefined && (await stat(gitDirectory)).dev === (await stat(root)).dev;
  return { staging: join(isNear ? gitDirectory : root, folder), gitStaging };
}

export async function makeStaging({ staging, gitStaging }: JournalTarget): Promise<void> {
  for (const folder of new Set([staging, gitStaging])) {
    if (folder !== null) await mkdir(folder, { recursive: true, mode: 0o700 });
  }
}

/** Writes every new file with the permissions that it will have, down to the disk. */
export async function stageFiles(checkout: Checkout, { staging, steps }: JournalTarget): Promise<void> {
  if (staging === null || steps.length === 0) return;
  const changes = steps.map((change, index) => ({ index, change }));
  await stage(checkout, staging, changes);
  const turns = new AtMost(syncsAtOnce);
  const written = steps.flatMap((step, index) =>
    step.to === null ? [] : [{ ...step, path: join(staging, String(index)) }],
  );
  await Promise.all(
    written.map(({ path, to, becomes }) =>
      turns.run(async () => {
        if (to?.mode === '120000') return;
        if (becomes?.owner != null) await giveTo(path, becomes.owner);
        if (becomes !== null) await chmod(path, becomes.perm);
        await syncFile(path);
      }),
    ),
  );
  await syncDirectory(staging);
}

export async function removeStaging({
  staging,
  gitStaging,
}: Pick<JournalTarget, 'staging' | 'gitStaging'>): Promise<void> {
  for (const folder of new Set([staging, gitStaging])) {
    if (folder !== null) await rm(folder, { recursive: true, force: true });
  }
}

export async function syncFile(path: string | Buffer): Promise<void> {
  const file = await open(path, 'r');
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Folders of which an entry changed, down to the disk. */
export async function syncFolders(paths: readonly Buffer[]): Promise<void> {
  const folders = new Set(paths.map((path) => dirname(path.toString('latin1'))));
  for (const folder of folders) {
    const path = Buffer.from(folder, 'latin1');
    if ((await lstat(path).catch(() => undefined))?.isDirectory()) await syncFile(path);
  }
}

async function giveTo(path: string, [uid, gid]: readonly [number, number]): Promise<void> {
  const { uid: presentUid, gid: presentGid } = await lstat(path);
  if (presentUid === uid && presentGid === gid) return;
  await chown(path, uid, gid).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPERM') throw error; // Who may write a file of somebody else's may not always give it to them.
  });
}
