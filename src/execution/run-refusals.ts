/** What init's refusal of a run means to whoever ordered it. Nothing ran. */
import { constants } from 'node:os';
import { PlatformError } from '../protocol/index.ts';
import { type Refusal, refusalCodes } from './init-protocol.ts';

const { errno } = constants;

export interface RefusedRun {
  readonly runId: string;
  /** The session that it is, or runs in. */
  readonly sessionId?: string;
  readonly cwd: string;
  readonly user: string | null;
  readonly leaseToken: number | null;
}

export function runRefusal(run: RefusedRun, refusal: Refusal): PlatformError {
  const details = { reason: refusal.text, errno: refusal.errno };
  switch (refusal.code) {
    case refusalCodes.workingDirectory:
      return new PlatformError('cwd_not_usable', `The working directory ${run.cwd} cannot be entered; nothing ran.`, {
        details: { ...details, cwd: run.cwd },
      });
    case refusalCodes.user:
      return new PlatformError('user_not_usable', `The sandbox has no user "${run.user}"; nothing ran.`, {
        details: { ...details, user: run.user },
      });
    case refusalCodes.fork:
      return new PlatformError(
        'limit_exceeded',
        `The sandbox's ${refusal.errno === errno.ENOMEM ? 'memory' : 'process'} limit is reached; nothing ran.`,
        { details },
      );
    case refusalCodes.initLimit:
      return new PlatformError('limit_exceeded', `The sandbox takes no more runs now (${refusal.text}); nothing ran.`);
    case refusalCodes.startedBefore:
      return new PlatformError('operation_in_doubt', `The run ${run.runId} was started before.`, { details });
    case refusalCodes.fence:
      return run.leaseToken === null
        ? new PlatformError('lease_held', 'Somebody holds a lease on this sandbox; nothing ran.')
        : new PlatformError('lease_lost', 'The lease token is not the current one; nothing ran.');
    case refusalCodes.ending:
      return new PlatformError('sandbox_wrong_state', 'The sandbox is ending; nothing ran.', {
        details: { state: 'stopping' },
      });
    case refusalCodes.generation:
      return new PlatformError('stale_generation', 'Another life of the sandbox runs; nothing was done.');
    case refusalCodes.malformed:
      return new PlatformError('invalid_command', `This cannot be run: ${refusal.text}`, { details });
    case refusalCodes.noSuchRun:
      return new PlatformError('session_not_found', `The sandbox has no session ${run.sessionId}; nothing ran.`);
    case refusalCodes.sessionOver:
      return new PlatformError('session_terminated', `The session ${run.sessionId} has ended; nothing ran.`);
    case refusalCodes.sessionShell:
      return new PlatformError('session_shell_not_usable', `The shell cannot be a session: ${refusal.text.trim()}`, {
        details,
      });
    case refusalCodes.program:
      return new PlatformError('process_not_startable', `The program cannot be started: ${refusal.text}`, { details });
    default:
      return new PlatformError('sandbox_unavailable', `The sandbox could not start it: ${refusal.text}`, { details });
  }
}
