/**
 * Puts the files of a commit into a sandbox. A checkout is written whole beside its place, under a name of ours, and only then renamed into it: a
 * reader inside finds all of it or what was there before. Everything is resolved inside the sandbox, and its files are root's, whose the commands
 * of a sandbox are by default.
 */
import { posix } from 'node:path';
import {
  type FileActionKind,
  type FileActionOrder,
  type FileAnswers,
  type GitObjectId,
  isPlatformError,
  type LifeOrder,
  type NodeApi,
  PlatformError,
  type WorkspaceFileChange,
  type WorkspaceId,
} from '../../protocol/index.ts';
import { filterTar } from '../tar-filter.ts';

export interface Place {
  readonly node: NodeApi;
  readonly life: LifeOrder;
  readonly leaseToken: number | null;
  readonly workspaceId: WorkspaceId;
  readonly path: string;
}

/** Refuses a path at which something is. */
export async function requireFree(place: Place): Promise<void> {
  const found = await find(place, place.path);
  if (found === undefined) return;
  const isEmpty =
    found.type === 'directory' &&
    (await act(place, { kind: 'list', path: place.path, depth: 1, limit: 1, after: null })).entries.length === 0;
  if (isEmpty) return;
  const message = `At ${place.path} something is already. A workspace needs a path that is free, or an empty directory.`;
  throw new PlatformError('file_exists', message, { details: { path: place.path } });
}

/** Whatever is at the path is gone after this, and the commit's checkout is there. Repeating it after a crash begins anew. */
export async function placeCheckout(place: Place, commit: GitObjectId): Promise<void> {
  const { node, workspaceId, path } = place;
  const { fresh, old } = namesBeside(place);
  await removeIfAny(place, fresh);
  try {
    await act(place, { kind: 'makeDirectory', path: posix.dirname(path), mode: null, parents: true });
    const order = { workspaceId, commit, kind: 'checkout' as const, since: [] };
    const { bytes } = await node.workspaces.exportBytes(order);
    await node.writeTree({ ...orderOf(place), path: fresh }, bytes);
    await removeIfAny(place, old);
    if ((await find(place, path)) !== undefined) {
      await act(place, { kind: 'move', from: path, to: old, replace: false });
    }
    await act(place, { kind: 'move', from: fresh, to: path, replace: false });
  } catch (error) {
    await removeIfAny(place, fresh).catch(() => {});
    throw error;
  }
  await removeIfAny(place, old);
}

/**
 * Brings the files from one tree to another, path by path: what goes, goes first, for a directory may stand where a file was. `commit` has the tree
 * to come to.
 */
export async function applyChanges(
  place: Place,
  change: { readonly files: readonly WorkspaceFileChange[]; readonly commit: GitObjectId },
): Promise<void> {
  const { node, workspaceId, path: root } = place;
  const removed = removedPaths(change.files);
  for (const path of removed) await removeIfAny(place, posix.join(root, path));
  await removeEmptied(place, removed);
  const written = new Set(change.files.filter(({ kind }) => kind !== 'deleted').map(({ path }) => path));
  if (written.size === 0) return;
  const directories = new Set([...written].flatMap(parentsOf));
  const order = { workspaceId, commit: change.commit, kind: 'archive' as const, since: [] };
  const { bytes } = await node.workspaces.exportBytes(order);
  const tar = filterTar(bytes, (path, isDirectory) => (isDirectory ? directories : written).has(path));
  await node.writeTree({ ...orderOf(place), path: root }, tar);
}

/** As git does: a directory goes with the last file in it. The innermost first. */
async function removeEmptied(place: Place, removed: readonly string[]): Promise<void> {
  const parents = [...new Set(removed.flatMap(parentsOf))].sort((a, b) => b.length - a.length);
  for (const path of parents) {
    try {
      await act(place, { kind: 'remove', path: posix.join(place.path, path), recursive: false });
    } catch (error) {
      const isStillNeeded = isPlatformError(error, 'directory_not_empty') || isPlatformError(error, 'file_not_found');
      if (!isStillNeeded) throw error;
    }
  }
}

/** Every path that a change touches. */
export function touchedPaths(files: readonly WorkspaceFileChange[]): Set<string> {
  return new Set(files.flatMap(({ path, from }) => (from === null ? [path] : [path, from])));
}

export async function removeCheckout(place: Place): Promise<void> {
  await removeIfAny(place, place.path);
}

function removedPaths(files: readonly WorkspaceFileChange[]): string[] {
  const removed: string[] = [];
  for (const { kind, path, from } of files) {
    if (kind === 'deleted' || kind === 'typeChanged') removed.push(path);
    if (kind === 'renamed' && from !== null) removed.push(from);
  }
  return removed;
}

function parentsOf(path: string): string[] {
  const parents: string[] = [];
  for (let at = path.lastIndexOf('/'); at > 0; at = path.lastIndexOf('/', at - 1)) parents.push(path.slice(0, at));
  return parents;
}

/** In the same directory, so that a rename does. */
function namesBeside({ path, workspaceId }: Place): { readonly fresh: string; readonly old: string } {
  const base = posix.join(posix.dirname(path), `.atoll-${workspaceId}`);
  return { fresh: `${base}-new`, old: `${base}-old` };
}

async function find(place: Place, path: string): Promise<FileAnswers['stat'] | undefined> {
  try {
    return await act(place, { kind: 'stat', path, followLinks: false });
  } catch (error) {
    if (isPlatformError(error, 'file_not_found')) return undefined;
    throw error;
  }
}

async function removeIfAny(place: Place, path: string): Promise<void> {
  try {
    await act(place, { kind: 'remove', path, recursive: true });
  } catch (error) {
    if (!isPlatformError(error, 'file_not_found')) throw error;
  }
}

function act<Kind extends FileActionKind>(
  place: Place,
  action: FileActionOrder<Kind>['action'],
): Promise<FileAnswers[Kind]> {
  return place.node.fileAction<Kind>({ ...orderOf(place), action });
}

function orderOf({ life, leaseToken }: Place) {
  return { sandboxId: life.sandboxId, generation: life.generation, user: null, leaseToken };
}
