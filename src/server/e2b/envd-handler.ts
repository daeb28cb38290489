/**
 * The seam between routing and the agent that E2B's SDK expects at port 49983 of each sandbox. Routing finds the sandbox and that it runs, and says on
 * whose behalf it is reached; the handler looks at the request's own proof (token or signature) and answers it, whatever it is.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger, Timers } from '../../base/index.ts';
import type { Caller } from '../../control/index.ts';
import type { SandboxId } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import type { EnvdTokens } from './envd-tokens.ts';

export const envdPort = 49_983;
/** What the SDK is told; it decides by it what may be asked of the agent. */
export const envdVersion = '0.6.13';

export interface EnvdSandbox {
  readonly sandboxId: SandboxId;
  /** Reaches this sandbox only. Nobody has proved to be it yet: the handler does that first. */
  readonly caller: Caller;
  /** Aborts when the server stops: what waits is not worth finishing. */
  readonly ending: AbortSignal;
}

export interface EnvdHandler {
  /** Whether the request brings a proof that is good for the sandbox: without one a paused sandbox is not woken for it. */
  isProven(request: IncomingMessage, sandboxId: SandboxId): boolean;
  /** Answers every request, refusals included; what it throws becomes an answer in E2B's error shape. */
  handle(request: IncomingMessage, response: ServerResponse, sandbox: EnvdSandbox): Promise<void>;
}

export interface EnvdOptions {
  readonly control: ControlPort;
  readonly tokens: EnvdTokens;
  readonly timers: Timers;
  readonly logger: Logger;
}
