/**
 * Files for the sandboxes of a FakeNode: directories of this machine, next to the checkouts that its workspaces collect from. A checkpoint is a copy of
 * one, and a sandbox made from it a copy of that, so that control can be tried with workspaces and no sandbox.
 */
import { cp, lstat, mkdir, readdir, rename, rm, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { unpackDirectory } from '../../src/cli/local-tar.ts';
import { type FileAction, type FileEntry, type NodeApi, newId, PlatformError } from '../../src/protocol/index.ts';
import type { FakeNode } from './fake-node.ts';

const checkpoints = 'checkpoints' as never;

export async function giveFiles(node: FakeNode): Promise<void> {
  const rootOf = (id: string) => node.checkout(id as never, '/');
  const at = async (sandboxId: string, path: string) => join(await rootOf(sandboxId), path);

  const checkpoint = node.branches.checkpoint;
  node.branches.checkpoint = async (order) => {
    const made = await checkpoint(order);
    const to = join(await rootOf(checkpoints), made.checkpointId);
    await rm(to, { recursive: true, force: true });
    await cp(await rootOf(order.sandboxId), to, { recursive: true, verbatimSymlinks: true, preserveTimestamps: true });
    return made;
  };
  const create = node.createSandbox.bind(node);
  node.createSandbox = async (order) => {
    const made = await create(order);
    if (order.fromCheckpoint !== null) {
      const from = join(await rootOf(checkpoints), order.fromCheckpoint);
      await cp(from, await rootOf(order.sandboxId), { recursive: true, verbatimSymlinks: true });
    }
    return made;
  };
  const remove = node.deleteSandbox.bind(node);
  node.deleteSandbox = async (order) => {
    await remove(order);
    await rm(await rootOf(order.sandboxId), { recursive: true, force: true });
  };
  node.fileAction = (async ({ sandboxId, action }: { sandboxId: string; action: FileAction }) => {
    switch (action.kind) {
      case 'stat':
        return await entryOf(await at(sandboxId, action.path), action.path);
      case 'list': {
        const names = await readdir(await at(sandboxId, action.path));
        return { entries: names.slice(0, action.limit).map((name) => ({ path: name })), next: null };
      }
      case 'makeDirectory':
        return void (await mkdir(await at(sandboxId, action.path), { recursive: true }));
      case 'move': {
        const to = await at(sandboxId, action.to);
        if (await lstat(to).catch(() => undefined)) await rmdir(to);
        return void (await rename(await at(sandboxId, action.from), to));
      }
      case 'remove':
        return await removeAt(await at(sandboxId, action.path), action);
      default:
        throw new Error(`There is no ${action.kind} here.`);
    }
  }) as unknown as NodeApi['fileAction'];
  node.writeTree = async ({ sandboxId, path }, tar) => {
    const to = await at(sandboxId, path);
    await mkdir(to, { recursive: true });
    await unpackDirectory(to, tar);
    return { bytes: 0 };
  };
  node.fileChanges = async () => ({ changes: [], cursor: newId('mark'), hasMore: false });
}

async function entryOf(local: string, path: string): Promise<FileEntry> {
  const facts = await lstat(local).catch(() => {
    throw new PlatformError('file_not_found', `There is no ${path}.`);
  });
  const type = facts.isDirectory() ? 'directory' : facts.isSymbolicLink() ? 'symlink' : 'file';
  return { path, type } as FileEntry;
}

async function removeAt(local: string, { path, recursive }: { path: string; recursive: boolean }): Promise<null> {
  await entryOf(local, path);
  if (recursive) await rm(local, { recursive: true });
  else {
    await rmdir(local).catch(() => {
      throw new PlatformError('directory_not_empty', `${dirname(path)} is not empty.`);
    });
  }
  return null;
}
