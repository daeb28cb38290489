/** The calls about processes to a node in another process. */
import type { IncomingMessage } from 'node:http';
import { FrameReader } from '../../base/index.ts';
import {
  type FollowProcessOrder,
  type NodeProcesses,
  PlatformError,
  type ProcessItem,
  type WriteStdinOrder,
} from '../../protocol/index.ts';
import { unreachable } from './call-failures.ts';
import { watchSilenceMs } from './node-wire.ts';
import { outputFrameLimitBytes, parseOutputFrame } from './process-wire.ts';

/** How the node's client sends. */
export interface ProcessCalls {
  ask<Result>(method: string, order: unknown, signal?: AbortSignal): Promise<Result>;
  order<Result>(method: string, order: unknown): Promise<Result>;
  stream(method: string, order: unknown, signal: AbortSignal): Promise<IncomingMessage>;
}

export function processClient(calls: ProcessCalls): NodeProcesses {
  return {
    startProcess: (order) => calls.order('startProcess', order),
    getProcess: (order) => calls.ask('getProcess', order),
    listProcesses: (order) => calls.ask('listProcesses', order),
    followProcess: (order, signal) => follow(calls, order, signal),
    writeStdin: (order) => calls.order('writeStdin', withText(order)),
    signalProcess: (order) => calls.order('signalProcess', order),
    killProcesses: (order) => calls.order('killProcesses', order),
    waitProcess: (order, signal) => calls.ask('waitProcess', order, signal),
    removeProcess: (order) => calls.order('removeProcess', order),
    probePort: (order, signal) => calls.ask('probePort', order, signal),
  };
}

function withText({ bytes, ...order }: WriteStdinOrder) {
  return { ...order, bytes: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('base64') };
}

async function* follow(
  calls: ProcessCalls,
  order: FollowProcessOrder,
  signal: AbortSignal,
): AsyncGenerator<ProcessItem, void> {
  let response: IncomingMessage | undefined;
  try {
    response = await calls.stream('followProcess', order, signal);
    response.setTimeout(watchSilenceMs, () => response?.destroy(new Error('The node is silent.')));
    const reader = new FrameReader({ limitBytes: outputFrameLimitBytes });
    for await (const chunk of response as AsyncIterable<Buffer>) {
      for (const frame of reader.push(chunk)) {
        const item = parseOutputFrame(frame);
        if (item === 'end') return;
        if (item !== undefined) yield item;
      }
    }
    throw new Error('The stream broke off.');
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof PlatformError) throw error;
    throw unreachable(error);
  } finally {
    response?.destroy();
  }
}
