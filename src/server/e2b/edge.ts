/**
 * Requests to ports of sandboxes, as E2B's clients make them: the agent's port goes to the adapter, every other one to what listens inside. Ports of a
 * sandbox that was made through E2B are open to whoever knows its name, unless it was made otherwise; then they need its traffic token. Ports of
 * other sandboxes are previews of the platform, by its own rules.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Caller, PreviewAdmission } from '../../control/index.ts';
import { isPlatformError, newId, PlatformError } from '../../protocol/index.ts';
import { refuseOnConnection } from '../bare-answer.ts';
import type { ControlPort } from '../control-port.ts';
import type { Exchange } from '../exchange.ts';
import type { PortAddress } from '../ports-port.ts';
import type { PreviewAddresses } from '../previews/preview-addresses.ts';
import { Previews } from '../previews/previews.ts';
import { E2bError } from './e2b-error.ts';
import { type EdgeAddress, findEdgeAddress } from './edge-addresses.ts';
import { type EnvdHandler, envdPort } from './envd-handler.ts';
import type { EnvdTokens } from './envd-tokens.ts';
import { marksOf } from './sandbox-marks.ts';
import { type SandboxSeen, type SandboxViews, stateOf } from './sandbox-views.ts';

export interface EdgeOptions {
  readonly control: ControlPort;
  readonly addresses: PreviewAddresses;
  readonly views: SandboxViews;
  readonly tokens: EnvdTokens;
  readonly envd: EnvdHandler;
  readonly fail: (exchange: Exchange, error: unknown) => void;
}

const tokenHeader = 'e2b-traffic-access-token';
/** What only the machinery around an agent may ask of it. */
const internalPaths = /^\/(init|freeze|unfreeze|collapse|fsfreeze|fsthaw|upgrade)(\?|\/|$)/;
/** Nobody takes a port back from E2B's clients. */
const neverRevoked = new AbortController().signal;

interface Found {
  readonly caller: Caller;
  readonly seen: SandboxSeen;
}

export class Edge {
  readonly #options: EdgeOptions;
  readonly #services: Previews;

  constructor(options: EdgeOptions) {
    this.#options = options;
    this.#services = new Previews({
      ports: { admit: (address, token) => this.#admit(address, token) },
      addresses: options.addresses,
      tokenIn: ({ headers }) => headers[tokenHeader]?.toString(),
      fail: options.fail,
    });
  }

  find(request: IncomingMessage): EdgeAddress | undefined {
    return findEdgeAddress(request, this.#options.addresses);
  }

  /** False: it is a preview of the platform's own. */
  async answer(exchange: Exchange, address: EdgeAddress): Promise<boolean> {
    const found = await this.#look(address);
    if (!this.#isOurs(address, found)) return false;
    if (address.port !== envdPort) {
      await this.#services.answer(exchange, masked(address, found)).catch((error: unknown) => {
        throw isPlatformError(error, 'port_not_open') ? notOpen(address) : error;
      });
      return true;
    }
    const { request, response } = exchange;
    if (internalPaths.test(request.url ?? '')) {
      throw new E2bError(404, 'This is not reached from outside.', { fields: { path: exchange.path } });
    }
    const { envd } = this.#options;
    const { caller, seen } = await this.#running(address, found, () => envd.isProven(request, address.sandboxId));
    await envd.handle(request, response, { sandboxId: seen.id, caller, ending: exchange.ending });
    return true;
  }

  /** For `Upgrades`; `otherwise` takes what is a preview of the platform's own. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, otherwise: () => void): boolean {
    let address: EdgeAddress | undefined;
    try {
      address = this.find(request);
    } catch {
      return false;
    }
    if (address === undefined) return false;
    const target = address;
    this.#look(target).then(
      (found) => {
        if (this.#isOurs(target, found)) this.#services.carry(masked(target, found), request, { socket, head });
        else otherwise();
      },
      (error: unknown) => {
        const refusal = isPlatformError(error) ? error : new PlatformError('internal', 'Something went wrong here.');
        refuseOnConnection(socket, refusal, newId('request'));
      },
    );
    return true;
  }

  close(): void {
    this.#services.close();
  }

  /** One that is gone is told from a preview that never was by its token, which was given out here. */
  #isOurs({ sandboxId, isByHeaders, port }: EdgeAddress, found: Found | undefined): boolean {
    if (isByHeaders || port === envdPort) return true;
    return found === undefined ? this.#options.tokens.isRecent(sandboxId) : marksOf(found.seen.metadata) !== undefined;
  }

  async #look({ sandboxId }: PortAddress): Promise<Found | undefined> {
    const { who, sandboxes } = this.#options.control;
    const caller = await who.actingFor(sandboxId);
    if (caller === undefined) return undefined;
    try {
      return { caller, seen: await sandboxes.get(caller, sandboxId) };
    } catch (error) {
      if (isPlatformError(error, 'sandbox_not_found')) return undefined;
      throw error;
    }
  }

  /** One that runs. A sandbox that was made to be woken by traffic is, by whoever may reach it. */
  async #running({ sandboxId }: PortAddress, found: Found | undefined, mayWake: () => boolean): Promise<Found> {
    if (found !== undefined && stateOf(found.seen) === 'running') return found;
    if (!found?.seen.autoResume || found.seen.paused?.mode === 'files' || !mayWake()) {
      throw new E2bError(502, 'The sandbox was not found', { fields: { sandboxId } });
    }
    const { caller } = found;
    return { caller, seen: await this.#options.control.pauses.resume(caller, sandboxId, {}, {}) };
  }

  async #admit(address: PortAddress, token: string | undefined): Promise<PreviewAdmission> {
    const { control, views } = this.#options;
    const { sandboxId } = address;
    const found = await this.#look(address);
    const isPublic = found !== undefined && marksOf(found.seen.metadata)?.isPublic === true;
    if (found !== undefined && !isPublic && !isSame(token, views.trafficTokenOf(sandboxId))) {
      throw new E2bError(403, 'Traffic access token is missing or wrong.', { fields: { sandboxId } });
    }
    const { caller, seen } = await this.#running(address, found, () => true);
    const { generation } = seen;
    return {
      life: { sandboxId, generation },
      revoked: neverRevoked,
      leave: () => {},
      open: (signal) => control.ports.open(caller, address, { generation }, signal),
    };
  }
}

/** With the host that services of this sandbox are to hear. */
function masked(address: EdgeAddress, found: Found | undefined): EdgeAddress {
  const requestHost = found && marksOf(found.seen.metadata)?.requestHost;
  return requestHost ? { ...address, requestHost: requestHost.replaceAll('${PORT}', String(address.port)) } : address;
}

function notOpen({ sandboxId, port }: PortAddress): E2bError {
  return new E2bError(502, 'The sandbox is running but port is not open', { fields: { sandboxId, port } });
}

function isSame(given: string | undefined, wanted: string): boolean {
  const hashed = (text: string) => createHash('sha256').update(text).digest();
  return given !== undefined && timingSafeEqual(hashed(given), hashed(wanted));
}
