/** Sessions in memory, for tests of control: made and deleted by id or name; what runs in one ends at once, and a run id runs once. */
import {
  type CreateSessionOrder,
  type NodeSession,
  type NodeSessions,
  PlatformError,
  type RunReport,
  type SessionExecOrder,
  type SessionExecOutcome,
  type SessionOrder,
  type SetSessionEnvOrder,
} from '../../src/protocol/index.ts';
import { runOf } from './fake-node.ts';

export class FakeSessions implements Omit<NodeSessions, 'startSessionProcess'> {
  readonly creates: CreateSessionOrder[] = [];
  readonly execs: SessionExecOrder[] = [];
  readonly envs: SetSessionEnvOrder[] = [];
  readonly #sessions = new Map<string, NodeSession>();
  readonly #runs: Map<string, RunReport>;

  /** `runs`: what the node's `findRun` knows. */
  constructor(runs: Map<string, RunReport>) {
    this.#runs = runs;
  }

  createSession = async (order: CreateSessionOrder): Promise<NodeSession> => {
    const known = this.#sessions.get(order.sessionId);
    if (known !== undefined) return known;
    this.creates.push(order);
    const { sessionId, generation, name, user, timeoutMs } = order;
    const session: NodeSession = {
      ...{ sessionId, generation, name, user, timeoutMs, pid: 9, shell: order.shell ?? 'bash', startedAtMs: 1 },
      ...{ end: null, cwd: order.cwd ?? '/workspace', current: null, queued: 0 },
    };
    this.#sessions.set(sessionId, session);
    return session;
  };

  getSession = async (order: SessionOrder): Promise<NodeSession> => this.#get(order.session);

  listSessions = async () => [...this.#sessions.values()];

  execInSession = async (order: SessionExecOrder): Promise<SessionExecOutcome> => {
    const { sessionId } = this.#get(order.session);
    const run = runOf(order);
    if (this.#runs.has(run)) throw new PlatformError('operation_in_doubt', 'This run was started before.');
    this.execs.push(order);
    const end = { exitCode: 3, signal: null, timedOut: false, killed: false };
    this.#runs.set(run, { kind: 'ended', ...end });
    return {
      ...{ ...end, outOfMemory: false, stdout: Buffer.from(order.command), stderr: new Uint8Array() },
      ...{ stdoutTruncated: false, stderrTruncated: false, startedAtMs: 0, durationMs: 1 },
      ...{ sessionId, queuedMs: 0, sessionEnded: null },
    };
  };

  setSessionEnv = async (order: SetSessionEnvOrder): Promise<void> => {
    this.#get(order.session);
    const run = runOf(order);
    if (this.#runs.has(run)) throw new PlatformError('operation_in_doubt', 'This run was started before.');
    this.envs.push(order);
    this.#runs.set(run, { kind: 'ended', exitCode: 0, signal: null, timedOut: false, killed: false });
  };

  deleteSession = async (order: SessionOrder): Promise<void> => {
    this.#sessions.delete(this.#get(order.session).sessionId);
  };

  #get(session: string): NodeSession {
    const found = this.#sessions.get(session) ?? [...this.#sessions.values()].find(({ name }) => name === session);
    if (found === undefined) throw new PlatformError('session_not_found', `There is no session "${session}".`);
    return found;
  }
}
