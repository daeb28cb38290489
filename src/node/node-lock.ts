/**
 * Keeps two nodes off one data directory. The lock is a unix socket in the abstract name space, named for the directory's device and
 * inode: the kernel gives a name to one process at a time and takes it back when that process dies, however it dies.
 *
 * It does not reach across network namespaces: do not share a data directory between containers.
 */
import { stat } from 'node:fs/promises';
import { createConnection, createServer, type Server } from 'node:net';
import { PlatformError } from '../protocol/index.ts';

const askTimeoutMs = 2_000;

export class NodeLock {
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  static async acquire(directory: string): Promise<NodeLock> {
    const { dev, ino } = await stat(directory, { bigint: true });
    const name = `\0atoll-node-${dev}-${ino}`;
    // Whoever finds the name taken connects to learn by whom.
    const server = createServer((socket) => {
      socket.on('error', () => {});
      socket.end(`${process.pid}\n`);
    });
    server.unref();
    const listening = Promise.withResolvers<void>();
    server.once('error', listening.reject);
    server.listen(name, listening.resolve);
    try {
      await listening.promise;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      const pid = await askHolder(name);
      const who = pid === undefined ? 'Another process' : `Process ${pid}`;
      throw new PlatformError(
        'directory_in_use',
        `${who} uses the data directory ${directory}. Stop it, or choose another directory.`,
        { details: { directory, pid: pid ?? null } },
      );
    }
    return new NodeLock(server);
  }

  async release(): Promise<void> {
    const closed = Promise.withResolvers<void>();
    this.#server.close(() => closed.resolve());
    await closed.promise;
  }
}

async function askHolder(name: string): Promise<number | undefined> {
  const socket = createConnection(name);
  socket.setTimeout(askTimeoutMs, () => socket.destroy());
  let text = '';
  socket.setEncoding('utf8');
  socket.on('data', (chunk) => {
    text = (text + chunk).slice(0, 20);
  });
  const over = Promise.withResolvers<void>();
  socket.on('error', () => over.resolve());
  socket.on('close', () => over.resolve());
  await over.promise;
  return /^\d+\n$/.test(text) ? Number(text) : undefined;
}
