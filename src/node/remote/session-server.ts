/** The calls about sessions, served over HTTP as JSON; an exec carries bytes and is served with the stateless one. */
import { z } from 'zod';
import { idSchema, type NodeApi } from '../../protocol/index.ts';
import { lifeOrder } from '../order-schemas.ts';
import { startProcessOrder } from './process-wire.ts';
import { parseOrder } from './serve-call.ts';

const count = z.int().nonnegative();
const leaseToken = count.nullable();
const env = z.record(z.string(), z.string().nullable());
const sessionOrder = lifeOrder.extend({ session: z.string() });
const turn = { session: z.string(), leaseToken, queueTimeoutMs: count.nullable() };

const createSessionOrder = lifeOrder.extend({
  sessionId: idSchema('session'),
  name: z.string().nullable(),
  leaseToken,
  cwd: z.string().nullable(),
  env,
  user: z.string().nullable(),
  timeoutMs: z.int().positive().nullable(),
  shell: z.string().nullable(),
});

/** Without its stdin, which travels as bytes behind it. */
export const sessionExecOrder = lifeOrder.extend({
  ...turn,
  runId: z.string(),
  command: z.string(),
  cwd: z.string().nullable(),
  env,
  timeoutMs: z.int().positive().nullable(),
  outputLimitBytes: count,
});

const setSessionEnvOrder = lifeOrder.extend({ ...turn, runId: z.string(), env });
const startSessionProcessOrder = startProcessOrder
  .omit({ command: true, user: true })
  .extend({ ...turn, command: z.string(), detach: z.boolean() });
const deleteSessionOrder = sessionOrder.extend({ leaseToken });

export function sessionCalls(node: NodeApi): Readonly<Record<string, (order: unknown) => Promise<unknown>>> {
  return {
    createSession: (order) => node.createSession(parseOrder(createSessionOrder, order)),
    getSession: (order) => node.getSession(parseOrder(sessionOrder, order)),
    listSessions: (order) => node.listSessions(parseOrder(lifeOrder, order)),
    setSessionEnv: (order) => node.setSessionEnv(parseOrder(setSessionEnvOrder, order)),
    startSessionProcess: (order) => node.startSessionProcess(parseOrder(startSessionProcessOrder, order)),
    deleteSession: (order) => node.deleteSession(parseOrder(deleteSessionOrder, order)),
  };
}
