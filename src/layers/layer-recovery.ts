/**
 * Reads a store's directory after whatever ended its last user: what was half-made is removed, what was half-removed is removed to the end,
 * a move is settled, and what is damaged is put aside. May itself be interrupted and repeated.
 */
import { randomBytes } from 'node:crypto';
import { readdir, rename } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type Logger, syncDirectory } from '../base/index.ts';
import { isId, type LayerId, type WritableId } from '../protocol/index.ts';
import { type ContentMoveParts, settleMove } from './content-move.ts';
import { exists } from './layer-data.ts';
import { treeNames } from './layer-driver.ts';
import { type LayerManifest, readManifest, readRecord, type WritableRecord } from './layer-manifest.ts';
import { dataOf, type LayerPaths } from './layer-paths.ts';

export interface RecoveredStore {
  readonly layers: Map<LayerId, LayerManifest>;
  readonly writables: Map<WritableId, WritableRecord>;
}

export async function recoverStore(parts: ContentMoveParts & { readonly log: Logger }): Promise<RecoveredStore> {
  const { paths, driver, log } = parts;
  await paths.make();
  if (driver.isTransactional) await removeUnfinished(parts);
  const writables = new Map<WritableId, WritableRecord>();
  for (const name of await readdir(paths.writables)) {
    const record = await readOrPutAside({ paths, log, path: join(paths.writables, name) }, async (path) => {
      if (!isId('writable', name)) throw new Error('It does not have the name of a writable layer.');
      const found = await readRecord(path, name);
      return found.movingTo === null ? found : await settleMove(parts, found, found.movingTo);
    });
    if (record !== undefined) writables.set(record.id, record);
  }
  // Only now: what a move had taken lies there until it is back.
  for (const directory of [paths.making, paths.trash]) {
    for (const name of await readdir(directory)) await driver.remove(join(directory, name));
  }
  const layers = new Map<LayerId, LayerManifest>();
  for (const name of await readdir(paths.layers)) {
    const manifest = await readOrPutAside({ paths, log, path: join(paths.layers, name) }, readLayer);
    if (manifest !== undefined) layers.set(manifest.id, manifest);
  }
  return { layers, writables };
}

/** What has its name from the beginning and never got its files. */
async function removeUnfinished({ paths, driver }: ContentMoveParts): Promise<void> {
  for (const directory of [paths.writables, paths.layers]) {
    for (const name of await readdir(directory)) {
      const path = join(directory, name);
      if (!(await exists(dataOf(path)))) await driver.remove(path);
    }
  }
}

/** Refuses a layer that is not whole. */
export async function readLayer(path: string): Promise<LayerManifest> {
  const manifest = await readManifest(path, basename(path));
  for (const name of treeNames) {
    if (!(await exists(join(dataOf(path), name)))) throw new Error(`Its tree "${name}" is missing.`);
  }
  return manifest;
}

/** What a failed reading leaves is kept for people to look at, and never used. */
export async function putAside(paths: LayerPaths, path: string): Promise<void> {
  const name = `${basename(path)}-${randomBytes(4).toString('hex')}`;
  await rename(path, join(paths.quarantine, name));
  await syncDirectory(paths.quarantine);
}

async function readOrPutAside<Content>(
  options: { readonly paths: LayerPaths; readonly log: Logger; readonly path: string },
  read: (path: string) => Promise<Content>,
): Promise<Content | undefined> {
  try {
    return await read(options.path);
  } catch (error) {
    options.log.error('Something in the storage of layers is damaged and is put aside.', { path: options.path, error });
    await putAside(options.paths, options.path);
    return undefined;
  }
}
