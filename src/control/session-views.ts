/** Sessions as callers see them. */
import type { NodeSession, SandboxId, SessionEnd, SessionView } from '../protocol/index.ts';

export function sessionViewOf(found: NodeSession, sandboxId: SandboxId): SessionView {
  const { sessionId, end, current, startedAtMs, ...rest } = found;
  return {
    ...rest,
    id: sessionId,
    sandboxId,
    state: end === null ? 'running' : 'ended',
    startedAt: new Date(startedAtMs).toISOString(),
    end: end === null ? null : sessionEndViewOf(end),
    current: current === null ? null : { operationId: current.runId, since: new Date(current.sinceMs).toISOString() },
  };
}

export function sessionEndViewOf(end: SessionEnd) {
  const { endedAtMs, ...facts } = end;
  return { ...facts, endedAt: new Date(endedAtMs).toISOString() };
}
