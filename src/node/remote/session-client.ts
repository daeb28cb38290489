/** The calls about sessions to a node in another process. */
import type { NodeSessions, SessionExecOrder, SessionExecOutcome } from '../../protocol/index.ts';

/** How the node's client sends. */
export interface SessionCalls {
  ask<Result>(method: string, order: unknown): Promise<Result>;
  order<Result>(method: string, order: unknown): Promise<Result>;
  /** With bytes both ways, and an abort that reaches the node. */
  exec(method: string, order: SessionExecOrder, signal?: AbortSignal): Promise<SessionExecOutcome>;
}

export function sessionClient(calls: SessionCalls): NodeSessions {
  return {
    createSession: (order) => calls.order('createSession', order),
    getSession: (order) => calls.ask('getSession', order),
    listSessions: (order) => calls.ask('listSessions', order),
    execInSession: (order, signal) => calls.exec('execInSession', order, signal),
    setSessionEnv: (order) => calls.order('setSessionEnv', order),
    startSessionProcess: (order) => calls.order('startSessionProcess', order),
    deleteSession: (order) => calls.order('deleteSession', order),
  };
}
