/** The calls about terminals to a node in another process. */
import type { NodeTerminals } from '../../protocol/index.ts';
import { readItems } from './item-stream.ts';
import { base64Of } from './node-wire.ts';
import type { NodeCalls } from './process-client.ts';

export function terminalClient(calls: NodeCalls): NodeTerminals {
  return {
    open: (order) => calls.order('openTerminal', order),
    get: (order) => calls.ask('getTerminal', order),
    list: (order) => calls.ask('listTerminals', order),
    follow: (order, signal) => readItems(() => calls.stream('followTerminal', order, signal), signal),
    write: (order) => calls.order('writeTerminal', { ...order, bytes: base64Of(order.bytes) }),
    resize: (order) => calls.order('resizeTerminal', order),
    signal: (order) => calls.order('signalTerminal', order),
    destroy: (order) => calls.order('destroyTerminal', order),
  };
}
