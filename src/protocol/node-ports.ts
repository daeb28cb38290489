/**
 * What control asks of a node about TCP ports inside a sandbox. Part of NodeApi; the same rules hold.
 *
 *  - `openPort` reaches a service on whatever address of the sandbox it listens on, and nothing outside the sandbox.
 *  - What is listed comes from the kernel's tables, read from outside; names of processes are the sandbox's own words.
 */
import type { LifeOrder } from './node-api.ts';

export interface OpenPortOrder extends LifeOrder {
  readonly port: number;
}

/** One socket that listens. */
export interface ListeningPort {
  readonly port: number;
  readonly family: 4 | 6;
  /** As text: `127.0.0.1`, `::`. */
  readonly address: string;
  /** Inside the sandbox; null where nobody could be found. */
  readonly pid: number | null;
  /** As the process calls itself; null where nobody could be found. */
  readonly processName: string | null;
}

/**
 * An open connection: bytes both ways, each of which ends on its own. It is a `Duplex` of Node, of which only this is named here,
 * because this module is for browsers too.
 */
export interface ByteConnection extends AsyncIterable<Uint8Array> {
  write(bytes: Uint8Array): boolean;
  end(): unknown;
  destroy(error?: Error): unknown;
  readonly destroyed: boolean;
}

export interface NodePorts {
  /** Every TCP socket that listens, by port. */
  listPorts(order: LifeOrder): Promise<readonly ListeningPort[]>;
  /** Refuses with `port_not_open` where nothing answers. `signal` ends the attempt, and nothing once it is open. */
  openPort(order: OpenPortOrder, signal: AbortSignal): Promise<ByteConnection>;
}
