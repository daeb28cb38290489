/** The machine's resolvers: those that were configured, or those of /etc/resolv.conf, read again when the last look is old. */
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';

const resolvConf = '/etc/resolv.conf';
const freshMs = 5_000;
const dnsPort = 53;

export interface Upstream {
  readonly address: string;
  readonly family: 4 | 6;
  readonly port: number;
}

export class Upstreams {
  readonly #configured: readonly Upstream[] | undefined;
  #read: Promise<Upstream[]> | undefined;
  #readAtMs = 0;

  constructor(servers?: readonly string[]) {
    this.#configured = servers?.map((text) => {
      const server = parseUpstream(text);
      if (server === undefined)
        throw new Error(`"${text}" is no resolver: an address, or address:port, [address]:port.`);
      return server;
    });
  }

  list(): Promise<readonly Upstream[]> {
    if (this.#configured !== undefined) return Promise.resolve(this.#configured);
    const nowMs = performance.now();
    if (this.#read === undefined || nowMs - this.#readAtMs > freshMs) {
      this.#readAtMs = nowMs;
      this.#read = readFile(resolvConf, 'utf8').then(nameservers, () => []);
    }
    return this.#read;
  }
}

export function nameservers(text: string): Upstream[] {
  const words = text.split('\n').map((line) => /^\s*nameserver\s+(\S+)/.exec(line)?.[1]);
  return words.flatMap((word) => (word === undefined ? [] : (parseUpstream(word) ?? [])));
}

/** `1.2.3.4`, `1.2.3.4:53`, `fd00::1`, `[fd00::1]:53`. A scope stays part of the address. */
export function parseUpstream(text: string): Upstream | undefined {
  const match = /^\[([^\]]+)\](?::(\d{1,5}))?$/.exec(text) ?? /^([^:]+)(?::(\d{1,5}))?$/.exec(text) ?? [text, text];
  const address = match[1] ?? '';
  const port = match[2] === undefined ? dnsPort : Number(match[2]);
  const family = isIP(address);
  return family === 0 || port < 1 || port > 65_535 ? undefined : { address, family: family as 4 | 6, port };
}
