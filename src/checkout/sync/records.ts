/**
 * What this machine knows of each sandbox that the checkout was synced with: one small file per sandbox, written whole.
 *
 * `pushed` is our snapshot that the sandbox has; `base` is the sandbox's snapshot right after it was applied there (the same, unless files
 * made by its set-up lie beside ours); `seen` is the newest snapshot of the sandbox that was brought here or saved on a ref.
 */
import { mkdir, readFile } from 'node:fs/promises';
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

export async function readRecord(checkout: Checkout, sandboxId: string): Promise<SyncRecord | undefined> {
  try {
    const record = JSON.parse(await readFile(pathOf(checkout, sandboxId), 'utf8')) as SyncRecord;
    return record.version === 1 ? record : undefined;
  } catch {
    return undefined; // Absent or torn: the sandbox is asked what it has.
  }
}

export async function writeRecord(checkout: Checkout, sandboxId: string, record: SyncRecord): Promise<void> {
  await mkdir(join(checkout.directory, 'sandboxes'), { recursive: true, mode: 0o700 });
  await writeFileDurably(pathOf(checkout, sandboxId), JSON.stringify(record));
}

function pathOf(checkout: Checkout, sandboxId: string): string {
  return join(checkout.directory, 'sandboxes', `${sandboxId.replaceAll(/[^A-Za-z0-9]/g, '_')}.json`);
}
