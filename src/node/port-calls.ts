/**
 * The ports of a node's sandboxes: what listens, and connections to it through init.
 *
 * Invariants:
 *  - A connection is in #open from before it is asked for until it is closed, so a sandbox never has more than the limit.
 *  - Where it leads is the kernel's answer about that sandbox, never a caller's: loopback, or the address that the port listens on.
 */
import type { Socket } from 'node:net';
import { type InitClient, openRelay } from '../execution/index.ts';
import {
  isPlatformError,
  type LifeOrder,
  type ListeningPort,
  type NodePorts,
  type OpenPortOrder,
  PlatformError,
  portLimits,
  type SandboxId,
} from '../protocol/index.ts';
import type { NodeRecord } from './node-record.ts';
import { admitLook } from './order-rules.ts';

export interface PortCallsOptions {
  /** Refuses a sandbox that is not here. */
  readonly get: (sandboxId: SandboxId) => { readonly record: NodeRecord; readonly client: InitClient | undefined };
  /** What listens in it, as the kernel has it. */
  readonly listening: (sandboxId: SandboxId, options: { readonly limit: number }) => Promise<ListeningPort[]>;
}

/** Reached by way of loopback. */
const everywhere: ReadonlySet<string> = new Set(['0.0.0.0', '::', '127.0.0.1', '::1']);
const mappedV4 = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/;

export class PortCalls implements NodePorts {
  readonly #options: PortCallsOptions;
  readonly #sockets = new Set<Socket>();
  readonly #open = new Map<SandboxId, number>();

  constructor(options: PortCallsOptions) {
    this.#options = options;
  }

  async listPorts(order: LifeOrder): Promise<readonly ListeningPort[]> {
    this.#admit(order);
    return await this.#options.listening(order.sandboxId, { limit: portLimits.listed });
  }

  async openPort(order: OpenPortOrder, signal: AbortSignal): Promise<Socket> {
    const client = this.#admit(order);
    const { sandboxId } = order;
    const open = this.#open.get(sandboxId) ?? 0;
    if (open >= portLimits.connections) {
      throw new PlatformError('limit_exceeded', `${portLimits.connections} connections into this sandbox are open.`);
    }
    this.#open.set(sandboxId, open + 1);
    try {
      const socket = await this.#connect(client, order, signal);
      this.#sockets.add(socket);
      socket.once('close', () => {
        this.#sockets.delete(socket);
        this.#closed(sandboxId);
      });
      return socket;
    } catch (error) {
      this.#closed(sandboxId);
      throw error;
    }
  }

  /** Cuts every connection. */
  close(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async #connect(client: InitClient, order: OpenPortOrder, signal: AbortSignal): Promise<Socket> {
    try {
      return await openRelay(client, order, signal);
    } catch (error) {
      if (!isPlatformError(error, 'port_not_open') || signal.aborted) throw error;
      const address = await this.#otherAddress(order);
      if (address === undefined) throw error;
      return await openRelay(client, { ...order, address }, signal);
    }
  }

  async #otherAddress({ sandboxId, port }: OpenPortOrder): Promise<string | undefined> {
    const listening = await this.#options.listening(sandboxId, { limit: portLimits.listed });
    const found = listening.find((one) => one.port === port && !everywhere.has(one.address));
    return found === undefined ? undefined : withoutMapping(found.address);
  }

  #admit(order: LifeOrder): InitClient {
    const { record, client } = this.#options.get(order.sandboxId);
    admitLook(record, order);
    if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending.');
    return client;
  }

  #closed(sandboxId: SandboxId): void {
    const left = this.#open.get(sandboxId)! - 1;
    if (left === 0) this.#open.delete(sandboxId);
    else this.#open.set(sandboxId, left);
  }
}

/** A socket of IPv6 that is bound to an address of IPv4 is reached by IPv4. */
function withoutMapping(address: string): string {
  const [, high, low] = mappedV4.exec(address) ?? [];
  if (high === undefined || low === undefined) return address;
  const bytes = Buffer.from(high.padStart(4, '0') + low.padStart(4, '0'), 'hex');
  return [...bytes].join('.');
}
