/** What the server asks of control about processes, in the shapes of the routes. */
import type { Caller, FollowedItem, StartedItem } from '../control/index.ts';
import type { BodyOf, Conditions, QueryOf, ResultOf, routes, SandboxId } from '../protocol/index.ts';
import type { Shown } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Query<Name extends keyof Routes> = QueryOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<Shown<ResultOf<Routes[Name]>>>;

/** The process by id or by name. */
export interface Address {
  readonly sandboxId: SandboxId;
  readonly process: string;
}

export interface ProcessesPort {
  start(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'startProcess'>,
  ): Result<'startProcess'>;
  /** The process first, then as `follow`. */
  startAndFollow(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'startProcess'>,
    signal: AbortSignal,
  ): AsyncIterable<StartedItem>;
  /** A look names the life it means, if the caller does: one of an earlier life is refused. */
  get(caller: Caller, address: Address, conditions: Conditions): Result<'getProcess'>;
  list(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    query: Query<'listProcesses'>,
  ): Result<'listProcesses'>;
  output(
    caller: Caller,
    address: Address,
    conditions: Conditions,
    query: Query<'readProcessOutput'>,
    signal: AbortSignal,
  ): Result<'readProcessOutput'>;
  /** Ends with the tree; `signal` ends the reading. */
  follow(
    caller: Caller,
    address: Address,
    conditions: Conditions,
    query: Pick<Query<'readProcessOutput'>, 'cursor'>,
    signal: AbortSignal,
  ): AsyncIterable<FollowedItem>;
  writeStdin(
    caller: Caller,
    address: Address,
    conditions: Conditions,
    body: Body<'writeProcessStdin'>,
  ): Result<'writeProcessStdin'>;
  signal(
    caller: Caller,
    address: Address,
    conditions: Conditions,
    body: Body<'signalProcess'>,
  ): Result<'signalProcess'>;
  killAll(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'killProcesses'>,
  ): Result<'killProcesses'>;
  /** `signal` ends the waiting and nothing else. */
  wait(
    caller: Caller,
    address: Address,
    conditions: Conditions,
    query: Query<'waitProcess'>,
    signal: AbortSignal,
  ): Result<'waitProcess'>;
  remove(caller: Caller, address: Address, conditions: Conditions): Promise<void>;
  probePort(
    caller: Caller,
    params: { readonly sandboxId: SandboxId; readonly port: number },
    conditions: Conditions,
    query: Query<'probePort'>,
    signal: AbortSignal,
  ): Result<'probePort'>;
}
