/** What the server asks of control about sessions, in the shapes of the routes. */
import type { Caller } from '../control/index.ts';
import type { BodyOf, Conditions, ResultOf, routes, SandboxId } from '../protocol/index.ts';
import type { Shown } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<Shown<ResultOf<Routes[Name]>>>;

/** The session by id or by name. */
export interface SessionAddress {
  readonly sandboxId: SandboxId;
  readonly session: string;
}

export interface SessionsPort {
  create(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'createSession'>,
  ): Result<'createSession'>;
  list(caller: Caller, sandboxId: SandboxId): Result<'listSessions'>;
  get(caller: Caller, address: SessionAddress): Result<'getSession'>;
  /** `signal`: what waits leaves the queue; what runs is killed, and its session with it. */
  exec(
    caller: Caller,
    address: SessionAddress,
    conditions: Conditions,
    body: Body<'execInSession'>,
    signal?: AbortSignal,
  ): Result<'execInSession'>;
  setEnv(caller: Caller, address: SessionAddress, conditions: Conditions, body: Body<'setSessionEnv'>): Promise<void>;
  startProcess(
    caller: Caller,
    address: SessionAddress,
    conditions: Conditions,
    body: Body<'startSessionProcess'>,
  ): Result<'startSessionProcess'>;
  delete(caller: Caller, address: SessionAddress, conditions: Conditions): Promise<void>;
}
