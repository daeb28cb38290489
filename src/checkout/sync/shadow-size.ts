/**
 * Keeps the shadow small: when many objects or packs have come together, everything that is still needed is put into one pack, and the rest goes.
 * Needed is what a record, the undo, the last snapshot or the index names; what the user's own repository has is borrowed and not copied.
 */
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Checkout, shadowCall } from './checkout.ts';
import { git } from './git-process.ts';
import { rememberedObjects } from './local-snapshot.ts';
import { keptRecords } from './records.ts';
import { readUndo } from './undo-record.ts';

export interface ShadowSize {
  readonly packs: number;
  readonly looseObjects: number;
}

/** As git itself does, one of 256 folders stands for all. */
const sampleFolder = '17';
const folders = 256;

export const shadowLimits: ShadowSize = { packs: 50, looseObjects: 6_700 };

/** The caller holds the checkout's lock. Answers whether there was something to do. */
export async function tidyShadow(checkout: Checkout, limits: ShadowSize = shadowLimits): Promise<boolean> {
  const size = await sizeOf(checkout);
  if (size.packs <= limits.packs && size.looseObjects <= limits.looseObjects) return false;
  await holdRoots(checkout);
  // What the user's repository has let go of cannot be packed: then everything stays as it is until the next snapshot has replaced it.
  const { code } = await git(['repack', '-a', '-d', '-l', '-q'], shadowCall(checkout, { accept: [1, 128] }));
  if (code === 0) await git(['prune', '--expire=now'], shadowCall(checkout, { accept: [128] }));
  await removeTemporary(checkout);
  return true;
}

async function sizeOf({ shadow }: Checkout): Promise<ShadowSize> {
  const packs = await readdir(join(shadow, 'objects/pack')).catch(() => []);
  const sample = await readdir(join(shadow, 'objects', sampleFolder)).catch(() => []);
  return { packs: packs.filter((name) => name.endsWith('.pack')).length, looseObjects: sample.length * folders };
}

/** A ref for each object that is needed; those of the last time go. */
async function holdRoots(checkout: Checkout): Promise<void> {
  const records = await keptRecords(checkout);
  const undo = await readUndo(checkout);
  const named = [
    ...records.flatMap((record) => [record.pushed, record.base, record.seen, record.pushedTree, record.seenTree]),
    ...records.map(({ indexTree }) => indexTree),
    ...(await rememberedObjects(checkout)),
    undo?.record.before ?? null,
  ];
  const wanted = [...new Set(named.filter((id) => id !== null))];
  const stdin = `${wanted.join('\n')}\n`;
  const { stdout } = await git(['cat-file', '--batch-check=%(objectname)'], shadowCall(checkout, { stdin }));
  const here = stdout
    .toString()
    .split('\n')
    .filter((line) => /^[0-9a-f]{40}$/.test(line));
  const old = await git(['for-each-ref', '--format=delete %(refname)', 'refs/atoll/roots'], shadowCall(checkout));
  await git(['update-ref', '--stdin'], shadowCall(checkout, { stdin: old.stdout }));
  const lines = here.map((id) => `create refs/atoll/roots/${id} ${id}\n`).join('');
  await git(['update-ref', '--stdin'], shadowCall(checkout, { stdin: lines }));
}

/** What a git that was killed has left; whoever holds the lock is alone here. */
async function removeTemporary({ shadow }: Checkout): Promise<void> {
  const folder = join(shadow, 'objects/pack');
  for (const name of await readdir(folder)) {
    const path = join(folder, name);
    if (name.startsWith('tmp_') && (await stat(path)).isFile()) await rm(path, { force: true });
  }
}
