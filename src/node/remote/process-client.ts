/** The calls about processes to a node in another process. */
import type { IncomingMessage } from 'node:http';
import type { NodeProcesses } from '../../protocol/index.ts';
import { readItems } from './item-stream.ts';
import { base64Of } from './node-wire.ts';

/** How the node's client sends. */
export interface NodeCalls {
  ask<Result>(method: string, order: unknown, signal?: AbortSignal): Promise<Result>;
  order<Result>(method: string, order: unknown): Promise<Result>;
  stream(method: string, order: unknown, signal: AbortSignal): Promise<IncomingMessage>;
}

export function processClient(calls: NodeCalls): NodeProcesses {
  return {
    startProcess: (order) => calls.order('startProcess', order),
    getProcess: (order) => calls.ask('getProcess', order),
    listProcesses: (order) => calls.ask('listProcesses', order),
    followProcess: (order, signal) => readItems(() => calls.stream('followProcess', order, signal), signal),
    writeStdin: (order) => calls.order('writeStdin', { ...order, bytes: base64Of(order.bytes) }),
    signalProcess: (order) => calls.order('signalProcess', order),
    killProcesses: (order) => calls.order('killProcesses', order),
    waitProcess: (order, signal) => calls.ask('waitProcess', order, signal),
    removeProcess: (order) => calls.order('removeProcess', order),
    probePort: (order, signal) => calls.ask('probePort', order, signal),
  };
}
