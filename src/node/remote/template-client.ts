/** The calls about templates to a node in another process. */
import type { NodeTemplates } from '../../protocol/index.ts';
import { readItems } from './item-stream.ts';
import { base64Of } from './node-wire.ts';
import type { NodeCalls } from './process-client.ts';

export function templateClient(calls: NodeCalls): NodeTemplates {
  return {
    build: (order) => calls.order('buildTemplate', order),
    getBuild: (order) => calls.ask('getBuild', order),
    followBuild: (order, signal) => readItems(() => calls.stream('followBuild', order, signal), signal),
    readBuild: (order) => calls.ask('readBuild', order),
    cancelBuild: (order) => calls.order('cancelBuild', order),
    appendContext: (order) => calls.order('appendContext', { ...order, bytes: base64Of(order.bytes) }),
    list: (order) => calls.ask('listTemplates', order),
    get: (order) => calls.ask('getTemplate', order),
    remove: (order) => calls.order('removeTemplate', order),
  };
}
