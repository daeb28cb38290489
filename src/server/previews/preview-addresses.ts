/**
 * Where previews are: by host name, `{port}-{sandbox}.{domain}`, and by path, `/preview/{sandbox}/{port}/…`. A host name gives each preview an
 * origin of its own; a path shares the API's, which is why less is passed on there (preview-headers.ts).
 */
import type { IncomingMessage } from 'node:http';
import { isId, type SandboxId } from '../../protocol/index.ts';
import type { PortAddress } from '../ports-port.ts';

export interface PreviewAddress extends PortAddress {
  readonly mode: 'host' | 'path';
  /** What stands before the service's own path: empty by host name. */
  readonly prefix: string;
  /** What the service hears as its host; absent: the one that the visitor named. */
  readonly requestHost?: string;
  /** The service's own path, with the question mark and what follows. */
  readonly target: string;
}

/** Below which host name previews are, and how a browser gets there. */
export interface PreviewDomain {
  readonly scheme: 'http' | 'https';
  readonly name: string;
  /** null: the one under which the API was reached. */
  readonly port: number | null;
}

const pathPattern = /^\/preview\/([a-z0-9]{23})\/([1-9]\d{0,4})(?=[/?]|$)/;
const labelPattern = /^([1-9]\d{0,4})-([a-z0-9]{23})$/;
const domainPattern = /^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$/;

/** `localhost`, `preview.example.com`, or with scheme and port as browsers see them: `https://preview.example.com`. */
export function parsePreviewDomain(text: string): PreviewDomain | undefined {
  const [, scheme, name = '', port] = /^(?:(https?):\/\/)?([^:/]+)(?::(\d{1,5}))?\/?$/.exec(text.toLowerCase()) ?? [];
  if (!domainPattern.test(name) || Number(port ?? 1) > 65_535) return undefined;
  if (scheme === undefined && port === undefined) return { scheme: 'http', name, port: null };
  const known = scheme === 'https' ? 'https' : 'http';
  return { scheme: known, name, port: Number(port ?? (known === 'https' ? 443 : 80)) };
}

export class PreviewAddresses {
  readonly domain: PreviewDomain;
  readonly #suffix: string;

  constructor(domain: PreviewDomain) {
    this.domain = domain;
    this.#suffix = `.${domain.name}`;
  }

  /** The preview that a request is for; undefined: it is for the API. */
  find(request: IncomingMessage): PreviewAddress | undefined {
    return this.#byHost(request.headers.host ?? '', request.url ?? '/') ?? byPath(request.url ?? '/');
  }

  urlsOf({ sandboxId, port }: PortAddress, apiHost: string): { readonly url: string; readonly pathUrl: string } {
    const { scheme, name } = this.domain;
    const hostPort = this.domain.port ?? Number(/:(\d+)$/.exec(apiHost)?.[1] ?? (scheme === 'https' ? 443 : 80));
    const shownPort = hostPort === (scheme === 'https' ? 443 : 80) ? '' : `:${hostPort}`;
    return {
      url: `${scheme}://${port}-${sandboxId}.${name}${shownPort}/`,
      pathUrl: `${scheme}://${apiHost}/preview/${sandboxId}/${port}/`,
    };
  }

  #byHost(host: string, url: string): PreviewAddress | undefined {
    const name = host.replace(/:\d+$/, '').toLowerCase();
    if (!name.endsWith(this.#suffix)) return undefined;
    const [, port, sandboxId] = labelPattern.exec(name.slice(0, -this.#suffix.length)) ?? [];
    const address = addressOf(sandboxId, port);
    return address && { ...address, mode: 'host', prefix: '', target: url };
  }
}

function byPath(url: string): PreviewAddress | undefined {
  if (!url.startsWith('/preview/')) return undefined;
  const [prefix, sandboxId, port] = pathPattern.exec(url) ?? [];
  const address = addressOf(sandboxId, port);
  return address && prefix !== undefined
    ? { ...address, mode: 'path', prefix, target: url.slice(prefix.length) }
    : undefined;
}

function addressOf(sandboxId: string | undefined, portText: string | undefined): PortAddress | undefined {
  const port = Number(portText);
  if (sandboxId === undefined || !isId('sandbox', sandboxId) || !(port <= 65_535)) return undefined;
  return { sandboxId: sandboxId as SandboxId, port };
}
