/** Questions about trees in the shadow: what differs, how large it is, what a change limited to some paths is. */

import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, shadowCall } from './checkout.ts';
import { git, gitLine, nameBytes, zeroSeparated } from './git-process.ts';

export interface TreeEntry {
  readonly mode: string;
  readonly id: string;
}

/** null: not there on that side. */
export interface TreeChange {
  /** Bytes as latin1. */
  readonly name: string;
  readonly from: TreeEntry | null;
  readonly to: TreeEntry | null;
}

export async function changesBetween(checkout: Checkout, from: string, to: string): Promise<TreeChange[]> {
  if (from === to) return [];
  const { stdout } = await git(
    ['diff-tree', '-r', '-z', '--raw', '--no-renames', '--no-abbrev', from, to],
    shadowCall(checkout),
  );
  const fields = zeroSeparated(stdout);
  const changes: TreeChange[] = [];
  for (let at = 0; at + 1 < fields.length; at += 2) {
    const [oldMode, newMode, oldId, newId] = fields[at]!.slice(1).split(' ') as [string, string, string, string];
    changes.push({
      name: fields[at + 1]!,
      from: oldMode === '000000' ? null : { mode: oldMode, id: oldId },
      to: newMode === '000000' ? null : { mode: newMode, id: newId },
    });
  }
  return changes;
}

/** The size of each blob, by its name. */
export async function sizesOfBlobs(checkout: Checkout, ids: readonly string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const call = shadowCall(checkout, { stdin: `${[...new Set(ids)].join('\n')}\n` });
  const { stdout } = await git(['cat-file', '--batch-check=%(objectname) %(objecttype) %(objectsize)'], call);
  const sizes = new Map<string, number>();
  for (const line of stdout.toString().split('\n')) {
    const [id, type, size] = line.split(' ');
    if (type === 'blob') sizes.set(id!, Number(size));
  }
  return sizes;
}

/** How much content is read from git at once. */
const batchBytes = 32 * 1024 * 1024;

/** Gives the content of each entry, in their order, without holding all of it. */
export async function eachBlob<Entry extends { readonly id: string }>(
  checkout: Checkout,
  entries: readonly Entry[],
  take: (entry: Entry, content: Buffer) => Promise<void>,
): Promise<void> {
  const ids = entries.map(({ id }) => id);
  const sizes = await sizesOfBlobs(checkout, ids);
  for (let at = 0; at < entries.length; ) {
    const part: Entry[] = [];
    for (let bytes = 0; at < entries.length && (part.length === 0 || bytes < batchBytes); at++) {
      part.push(entries[at]!);
      bytes += sizes.get(entries[at]!.id) ?? 0;
    }
    const stdin = `${part.map(({ id }) => id).join('\n')}\n`;
    const { stdout } = await git(['cat-file', '--batch'], shadowCall(checkout, { stdin }));
    let offset = 0;
    for (const entry of part) {
      const end = stdout.indexOf(10, offset);
      const [name, type, size] = stdout.toString('latin1', offset, end).split(' ');
      if (name !== entry.id || type !== 'blob') {
        throw new PlatformError('sync_failed', `Content is no longer kept here: ${entry.id}`, {
          details: { isObjectLost: true },
        });
      }
      await take(entry, stdout.subarray(end + 1, end + 1 + Number(size)));
      offset = end + 2 + Number(size);
    }
  }
}

/** Of these commits, those whose objects are here. */
export async function knownCommits(checkout: Checkout, ids: readonly string[]): Promise<string[]> {
  if (ids.length === 0) return [];
  const call = shadowCall(checkout, { stdin: `${[...new Set(ids)].join('\n')}\n` });
  const { stdout } = await git(['cat-file', '--batch-check=%(objectname) %(objecttype)'], call);
  return stdout
    .toString()
    .split('\n')
    .filter((line) => line.endsWith(' commit'))
    .map((line) => line.slice(0, 40));
}

/** Whether a name, its bytes as latin1, is at or below one of the paths, which are from the root of the checkout; without paths it is. */
export function isBelow(name: string, paths: readonly string[] | undefined): boolean {
  if (paths === undefined) return true;
  return paths.some((given) => {
    const path = Buffer.from(given.replace(/^\.\//, '').replace(/\/+$/, '')).toString('latin1');
    return path === '.' || path === '' || name === path || name.startsWith(`${path}/`);
  });
}

/** `base` with only those changes towards `target` that are at or below one of the paths. */
export async function limitedTree(
  checkout: Checkout,
  base: string,
  target: string,
  paths: readonly string[] | undefined,
): Promise<string> {
  if (paths === undefined || base === target) return target;
  const changes = (await changesBetween(checkout, base, target)).filter(({ name }) => isBelow(name, paths));
  if (changes.length === 0) return base;
  const env = { GIT_INDEX_FILE: join(checkout.shadow, 'limited-index') };
  await rm(env.GIT_INDEX_FILE, { force: true });
  await git(['read-tree', base], shadowCall(checkout, { env }));
  const removals = changes.filter(({ to }) => to === null);
  const lines = [...removals, ...changes.filter(({ to }) => to !== null)].map(({ name, to }) =>
    Buffer.concat([
      Buffer.from(to === null ? `0 ${'0'.repeat(40)}\t` : `${to.mode} ${to.id}\t`),
      nameBytes(name),
      Buffer.of(0),
    ]),
  );
  await git(['update-index', '-z', '--index-info'], shadowCall(checkout, { env, stdin: Buffer.concat(lines) }));
  return await gitLine(['write-tree'], shadowCall(checkout, { env }));
}
