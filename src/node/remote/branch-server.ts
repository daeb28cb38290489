/** The calls about branches of files, served over HTTP as JSON. */
import { z } from 'zod';
import { idSchema, type NodeApi } from '../../protocol/index.ts';
import { lifeOrder, startOrder } from '../order-schemas.ts';
import { parseOrder } from './serve-call.ts';

const checkpointId = idSchema('checkpoint');
const named = z.strictObject({ checkpointId });
const checkpointOrder = lifeOrder.extend({ checkpointId, leaseToken: z.int().nonnegative().nullable() });
const restoreOrder = startOrder.extend({ checkpointId });

export function branchCalls({ branches }: NodeApi): Readonly<Record<string, (order: unknown) => Promise<unknown>>> {
  return {
    describeStorage: () => branches.describeStorage(),
    checkpoint: (order) => branches.checkpoint(parseOrder(checkpointOrder, order)),
    findCheckpoint: (order) => branches.findCheckpoint(parseOrder(named, order).checkpointId),
    listCheckpoints: () => branches.listCheckpoints(),
    removeCheckpoint: (order) => branches.removeCheckpoint(parseOrder(named, order).checkpointId),
    restore: (order) => branches.restore(parseOrder(restoreOrder, order)),
    pause: (order) => branches.pause(parseOrder(startOrder, order)),
    resume: (order) => branches.resume(parseOrder(startOrder, order)),
    diskUsage: (order) => branches.usage(parseOrder(lifeOrder, order)),
  };
}
