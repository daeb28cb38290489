/** The calls about branches of files to a node in another process. */
import type { NodeBranches } from '../../protocol/index.ts';
import type { NodeCalls } from './process-client.ts';

export function branchClient(calls: Pick<NodeCalls, 'ask' | 'order'>): NodeBranches {
  return {
    describeStorage: () => calls.ask('describeStorage', {}),
    checkpoint: (order) => calls.order('checkpoint', order),
    findCheckpoint: (checkpointId) => calls.ask('findCheckpoint', { checkpointId }),
    listCheckpoints: () => calls.ask('listCheckpoints', {}),
    removeCheckpoint: (checkpointId) => calls.order('removeCheckpoint', { checkpointId }),
    restore: (order) => calls.order('restore', order),
    pause: (order) => calls.order('pause', order),
    resume: (order) => calls.order('resume', order),
    usage: (order) => calls.ask('diskUsage', order),
  };
}
