/** What the server asks of control about terminals, in the shapes of the routes. */
import type { Attachment, Caller } from '../control/index.ts';
import type { BodyOf, Conditions, QueryOf, ResultOf, routes, SandboxId } from '../protocol/index.ts';
import type { Shown } from './control-port.ts';

type Routes = typeof routes;
type Body<Name extends keyof Routes> = BodyOf<Routes[Name]>;
type Query<Name extends keyof Routes> = QueryOf<Routes[Name]>;
type Result<Name extends keyof Routes> = Promise<Shown<ResultOf<Routes[Name]>>>;

/** The terminal by id or by the handle it was opened with. */
export interface TerminalAddress {
  readonly sandboxId: SandboxId;
  readonly terminal: string;
}

export interface TerminalsPort {
  open(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: Body<'openTerminal'>,
  ): Promise<{ readonly view: Shown<ResultOf<Routes['openTerminal']>>; readonly created: boolean }>;
  get(caller: Caller, address: TerminalAddress): Result<'getTerminal'>;
  list(caller: Caller, sandboxId: SandboxId): Result<'listTerminals'>;
  resize(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    body: Body<'resizeTerminal'>,
  ): Result<'resizeTerminal'>;
  /** What is typed, for whoever is not attached. */
  write(caller: Caller, address: TerminalAddress, conditions: Conditions, bytes: Uint8Array): Promise<void>;
  signal(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    body: Body<'signalTerminal'>,
  ): Result<'signalTerminal'>;
  destroy(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    query: Query<'destroyTerminal'>,
  ): Promise<void>;
  /** The signal ends the reading and nothing else. */
  attach(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    query: Query<'attachTerminal'>,
    signal: AbortSignal,
  ): Promise<Attachment>;
}
