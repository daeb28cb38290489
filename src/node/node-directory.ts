/** Opens a data directory: makes it if it is new, locks it, and reads who the node is. */
import { createHash } from 'node:crypto';
import { chmod, mkdir, readFile, realpath } from 'node:fs/promises';
import { z } from 'zod';
import { DirectoryLock, writeFileDurably } from '../base/index.ts';
import { idSchema, type NodeId, newId } from '../protocol/index.ts';
import { NodePaths } from './node-paths.ts';

const formatVersion = 1;
const nodeFile = z.object({ format: z.int(), nodeId: idSchema('node') });

export interface NodeIdentity {
  readonly nodeId: NodeId;
  /** Where this node begins to hand out ranges of user ids. */
  readonly slotStart: number;
}

/** The directory was written by a newer version of this software; nothing in it was touched. */
export class NewerDirectory extends Error {
  override readonly name = 'NewerDirectory';
}

/** Refuses with `DirectoryInUse` or `NewerDirectory`. */
export async function openNodeDirectory(
  path: string,
): Promise<{ readonly identity: NodeIdentity; readonly lock: DirectoryLock; readonly dataDirectory: string }> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  const dataDirectory = await realpath(path);
  const lock = await DirectoryLock.acquire(dataDirectory, 'node');
  try {
    // Sandboxes can leave setuid files of the real root below it: nobody else may look inside.
    await chmod(dataDirectory, 0o700);
    const paths = new NodePaths({ dataDirectory });
    const nodeId = await readNodeId(paths);
    for (const directory of [paths.sandboxes, paths.making, paths.trash, paths.spare]) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
    }
    const slotStart = createHash('sha256').update(dataDirectory).digest().readUInt32LE(0);
    return { identity: { nodeId, slotStart }, lock, dataDirectory };
  } catch (error) {
    await lock.release();
    throw error;
  }
}

async function readNodeId(paths: NodePaths): Promise<NodeId> {
  const text = await readFile(paths.nodeFile, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text === undefined) {
    const nodeId = newId('node');
    await writeFileDurably(paths.nodeFile, `${JSON.stringify({ format: formatVersion, nodeId })}\n`);
    return nodeId;
  }
  const { format, nodeId } = nodeFile.parse(JSON.parse(text));
  if (format > formatVersion) {
    const message = `The data directory ${paths.root} was written by a newer version (format ${format}); this one knows ${formatVersion}. Use the newer version.`;
    throw new NewerDirectory(message);
  }
  return nodeId;
}
