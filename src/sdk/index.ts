/** The client library: `npm i atoll`, then `Sandbox.create({ url, apiKey })`. Needs fetch and nothing else. */
export type {
  ErrorCode,
  EventView,
  KeyView,
  LeaseView,
  SandboxView,
  Scope,
  StateKind,
} from '../protocol/index.ts';
export { errorCatalog, isPlatformError, PlatformError } from '../protocol/index.ts';
export { Atoll } from './atoll.ts';
export type { CallOptions, ClientClock, ConnectionOptions } from './connection.ts';
export type { EventsFrom } from './events.ts';
export type { ExecOptions, ExecResult } from './exec.ts';
export type { AcquireLeaseOptions, HeldLease } from './leases.ts';
export {
  type ClientChoice,
  type CreateSandboxOptions,
  type ListSandboxesOptions,
  type MetadataHistory,
  type MetadataView,
  Sandbox,
  type UpdateSandboxOptions,
} from './sandbox.ts';
