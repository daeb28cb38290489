/**
 * Where a sandbox's init listens. A socket's address holds 107 bytes and data directories may be deeper, so the directory is held
 * open and the socket is reached through it; a directory that is renamed meanwhile is still the same one.
 */
import { constants, type FileHandle, open } from 'node:fs/promises';
import { createConnection, type OnReadOpts, type Socket } from 'node:net';
import { PlatformError } from '../protocol/index.ts';

export interface ConnectOptions {
  /** The end of what init sends leaves our own sending side open. */
  readonly allowHalfOpen?: boolean;
  /** What comes is read to memory of the caller's; there is no event `data` then. */
  readonly onread?: OnReadOpts;
  readonly writableHighWaterMark?: number;
}

export class InitAddress {
  readonly #directory: FileHandle;
  #closed = false;

  private constructor(directory: FileHandle) {
    this.#directory = directory;
  }

  static async open(directory: string): Promise<InitAddress> {
    return new InitAddress(await open(directory, constants.O_RDONLY | constants.O_DIRECTORY));
  }

  connect(options: ConnectOptions = {}): Socket {
    // The number of a closed descriptor may already be another sandbox's directory.
    if (this.#closed) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing was started.');
    return createConnection({ path: `/proc/self/fd/${this.#directory.fd}/init.sock`, ...options });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#directory.close();
  }
}
