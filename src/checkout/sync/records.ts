/**
 * What this machine knows of each sandbox that the checkout was synced with: one small file per sandbox, written whole.
 *
 * `pushed` is our snapshot that the sandbox has; `base` is the sandbox's snapshot right after it was applied there (the same, unless files
 * made by its set-up lie beside ours); `seen` is the newest snapshot of the sandbox that was brought here or saved on a ref.
 */
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileDurably } from '../../base/index.ts';
import type { Checkout } from './checkout.ts';

export interface SyncRecord {
  readonly version: 1;
  readonly pushed: string;
  readonly pushedTree: string;
  readonly head: string | null;
  readonly indexTree: string | null;
  readonly base: string;
  readonly baseTree: string;
  readonly seen: string;
  readonly seenTree: string;
  readonly seenHead: string | null;
}

/** What is remembered of sandboxes beyond the newest so many costs more than it saves. */
const recordsMax = 32;

export function readRecord(checkout: Checkout, sandboxId: string): Promise<SyncRecord | undefined> {
  return readAt(pathOf(checkout, sandboxId));
}

export async function writeRecord(checkout: Checkout, sandboxId: string, record: SyncRecord): Promise<void> {
  await mkdir(join(checkout.directory, 'sandboxes'), { recursive: true, mode: 0o700 });
  await writeFileDurably(pathOf(checkout, sandboxId), JSON.stringify(record));
}

/** Those that were used last; the others are forgotten, and their sandboxes are asked what they have. */
export async function keptRecords(checkout: Checkout): Promise<SyncRecord[]> {
  const folder = join(checkout.directory, 'sandboxes');
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.json'));
  const aged = await Promise.all(
    names.map(async (name) => ({ name, usedMs: (await stat(join(folder, name))).mtimeMs })),
  );
  const newest = aged.sort((a, b) => b.usedMs - a.usedMs).map(({ name }) => name);
  for (const name of newest.slice(recordsMax)) await rm(join(folder, name), { force: true });
  const records = await Promise.all(newest.slice(0, recordsMax).map((name) => readAt(join(folder, name))));
  return records.filter((record) => record !== undefined);
}

async function readAt(path: string): Promise<SyncRecord | undefined> {
  try {
    const record = JSON.parse(await readFile(path, 'utf8')) as SyncRecord;
    return record.version === 1 ? record : undefined;
  } catch {
    return undefined; // Absent or torn: the sandbox is asked what it has.
  }
}

function pathOf(checkout: Checkout, sandboxId: string): string {
  return join(checkout.directory, 'sandboxes', `${sandboxId.replaceAll(/[^A-Za-z0-9]/g, '_')}.json`);
}
