/** What the server asks of control about ports and previews. */
import type { Caller, ExposedPort, ExposedPortWithToken, PreviewAdmission } from '../control/index.ts';
import type { BodyOf, ByteConnection, Conditions, ListeningPort, routes, SandboxId } from '../protocol/index.ts';

export interface PortAddress {
  readonly sandboxId: SandboxId;
  readonly port: number;
}

export interface PortsPort {
  list(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
  ): Promise<{ readonly listening: readonly ListeningPort[]; readonly exposed: readonly ExposedPort[] }>;
  expose(
    caller: Caller,
    address: PortAddress,
    conditions: Conditions,
    body: BodyOf<(typeof routes)['exposePort']>,
  ): Promise<ExposedPortWithToken>;
  unexpose(caller: Caller, address: PortAddress, conditions: Conditions): Promise<void>;
  rotate(caller: Caller, address: PortAddress, conditions: Conditions): Promise<ExposedPortWithToken>;
  /** To any port, exposed or not. */
  open(caller: Caller, address: PortAddress, conditions: Conditions, signal: AbortSignal): Promise<ByteConnection>;
  /** Of somebody who has no key. */
  admit(address: PortAddress, token: string | undefined): Promise<PreviewAdmission>;
}
