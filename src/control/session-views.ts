/** Sessions as callers see them. */
import {
  type NodeSession,
  PlatformError,
  type SandboxId,
  type SessionEnd,
  type SessionView,
} from '../protocol/index.ts';

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

/** Why a relative path leads nowhere. */
export function sessionNowhere({ sessionId, name, end }: NodeSession): PlatformError {
  if (end === null) {
    const message = `Where the session ${name ?? sessionId} is cannot be told now; nothing was done. Give an absolute path.`;
    return new PlatformError('sandbox_unavailable', message);
  }
  const message = `The session ${name ?? sessionId} has ended; give an absolute path without it, or create it again.`;
  return new PlatformError('session_terminated', message, { details: { sessionId, name, ...end } });
}
