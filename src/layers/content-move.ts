/**
 * Makes a layer of a writable layer's content by rename, in steps that a crash may interrupt anywhere.
 *
 *   record: movingTo  ->  data renamed to making/<layer>  ->  making/<layer> renamed to layers/<layer>  ->  empty data, record with the layer
 *
 * Before the layer has its name everything goes back; from then on everything goes forward. Nobody uses the writable layer meanwhile.
 */
import { rename } from 'node:fs/promises';
import { type FaultPoints, syncDirectory } from '../base/index.ts';
import type { LayerOperations } from '../isolation/index.ts';
import type { LayerId } from '../protocol/index.ts';
import { exists } from './layer-data.ts';
import type { LayerDriver } from './layer-driver.ts';
import { type WritableRecord, writeRecord } from './layer-manifest.ts';
import { dataOf, type LayerPaths } from './layer-paths.ts';

export interface ContentMoveParts {
  readonly paths: LayerPaths;
  readonly driver: LayerDriver;
  readonly operations: LayerOperations;
  readonly faults: FaultPoints;
}

/** The layer's manifest is in making/ already. When it fails, all is as it was. Returns the record as it is then. */
export async function moveContent(
  parts: ContentMoveParts,
  record: WritableRecord,
  to: LayerId,
): Promise<WritableRecord> {
  const { paths, operations, faults } = parts;
  const directory = paths.writable(record.id);
  try {
    await writeRecord(directory, { ...record, movingTo: to });
    await faults.hit('layers-move-intended');
    await operations.sync(dataOf(directory));
    await rename(dataOf(directory), dataOf(paths.unfinished(to)));
    await faults.hit('layers-move-taken');
    await syncDirectory(paths.unfinished(to));
    await rename(paths.unfinished(to), paths.layer(to));
    await syncDirectory(paths.layers);
    await faults.hit('layers-move-named');
    return await finishMove(parts, record, to);
  } catch (error) {
    await undoMove(parts, record, to);
    throw error;
  }
}

/** After a crash: forward when the layer has its name, back when it has not. */
export async function settleMove(
  parts: ContentMoveParts,
  record: WritableRecord,
  to: LayerId,
): Promise<WritableRecord> {
  if (await exists(parts.paths.layer(to))) return await finishMove(parts, record, to);
  return await undoMove(parts, record, to);
}

async function finishMove(parts: ContentMoveParts, record: WritableRecord, to: LayerId): Promise<WritableRecord> {
  const { paths, driver, faults } = parts;
  const directory = paths.writable(record.id);
  // An earlier attempt may have left some of it; nobody has written there yet.
  await driver.remove(dataOf(directory));
  await driver.makeWritable(dataOf(directory), dataOf(paths.layer(to)));
  await faults.hit('layers-move-fresh');
  const moved = { ...record, parents: [to, ...record.parents], movingTo: null };
  await writeRecord(directory, moved);
  return moved;
}

async function undoMove(parts: ContentMoveParts, record: WritableRecord, to: LayerId): Promise<WritableRecord> {
  const { paths, driver } = parts;
  const directory = paths.writable(record.id);
  if (await exists(paths.layer(to))) {
    await driver.remove(dataOf(directory));
    await rename(paths.layer(to), paths.unfinished(to));
  }
  const taken = dataOf(paths.unfinished(to));
  if (await exists(taken)) await rename(taken, dataOf(directory));
  await syncDirectory(directory);
  const before = { ...record, movingTo: null };
  await writeRecord(directory, before);
  return before;
}
