/** Ports of one sandbox: what listens inside, and what of it is shown outside. */
import { type BodyInputOf, type ExposureView, type ResultOf, routes } from '../protocol/index.ts';
import type { CallOptions } from './connection.ts';
import type { SandboxBinding } from './processes.ts';

type Routes = typeof routes;
export type PortList = ResultOf<Routes['listPorts']>;
/** With its token, which opens it. */
export type Exposure = ResultOf<Routes['exposePort']>;
export type ExposedPort = ExposureView;
export type ExposeOptions = BodyInputOf<Routes['exposePort']> & CallOptions;

export class Ports {
  readonly #binding: SandboxBinding;

  constructor(binding: SandboxBinding) {
    this.#binding = binding;
  }

  /** What listens now, and what is exposed. */
  list(options: { readonly signal?: AbortSignal } = {}): Promise<PortList> {
    const { connection, sandboxId } = this.#binding;
    return connection.call(routes.listPorts, { params: { sandboxId }, ...this.#binding.bound(options) });
  }

  /** Shows a port outside. Again: the same token; `public` changes where it is given. */
  expose(port: number, options: ExposeOptions = {}): Promise<Exposure> {
    const { public: isPublic, ...call } = options;
    return this.#binding.connection.call(routes.exposePort, {
      ...this.#request(port, call),
      body: isPublic === undefined ? {} : { public: isPublic },
    });
  }

  /** Ends the preview and what goes on in it. Of a port that is not exposed: nothing happens. */
  async unexpose(port: number, options: CallOptions = {}): Promise<void> {
    await this.#binding.connection.call(routes.unexposePort, this.#request(port, options));
  }

  /** Another token; the earlier one is refused from now on, and what it opened is cut. */
  rotateToken(port: number, options: CallOptions = {}): Promise<Exposure> {
    return this.#binding.connection.call(routes.rotatePortToken, this.#request(port, options));
  }

  /** Where an exposed port is found by path, for programs. For browsers, `expose` tells an address of its own. */
  url(port: number): string {
    const { connection, sandboxId } = this.#binding;
    return `${connection.url}/preview/${sandboxId}/${port}/`;
  }

  /** What to send to have a connection to a port, exposed or not: it is answered with 101 and carries the service's own bytes. */
  connectRequest(port: number): { readonly url: string; readonly headers: Readonly<Record<string, string>> } {
    const { connection, sandboxId } = this.#binding;
    const headers = { ...connection.authorization(), Connection: 'Upgrade', Upgrade: 'atoll-tcp' };
    return { url: `${connection.url}/v1/sandboxes/${sandboxId}/ports/${port}/connect`, headers };
  }

  #request(port: number, call: CallOptions) {
    return { params: { sandboxId: this.#binding.sandboxId, port }, ...this.#binding.bound(call) };
  }
}
