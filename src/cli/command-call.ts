/** One run of one command: its options, the client it talks through, and the only ways it prints. */
import type { Command } from 'commander';
import { type Conditions, isId, PlatformError } from '../protocol/index.ts';
import { Atoll, Sandbox } from '../sdk/index.ts';
import { CliError } from './cli-error.ts';
import type { CliIo } from './cli-io.ts';
import { exitCodes } from './exit-codes.ts';

export interface GlobalOptions {
  readonly json?: boolean;
  readonly url?: string;
  readonly key?: string;
  readonly data?: string;
}

/** How often the client repeats what is harmless to repeat: a person waits for it. */
const retries = 2;
const pageLimit = 1_000;

export class CommandCall<Options = object> {
  readonly io: CliIo;
  readonly options: Options & GlobalOptions;
  /** Set by a command that has something to say with it. */
  exitCode: number = exitCodes.done;
  /** How many words stand behind `--`; absent: there is no `--`. */
  readonly dashed: number | undefined;
  /** As it was typed: `exec`, `bg start`. */
  readonly commandName: string;
  #client: Promise<Atoll> | undefined;

  constructor(io: CliIo, command: Command) {
    this.io = io;
    this.options = command.optsWithGlobals() as Options & GlobalOptions;
    this.dashed = wordsBehindDashes(command);
    this.commandName = nameOf(command);
  }

  get isJson(): boolean {
    return this.options.json === true;
  }

  client(): Promise<Atoll> {
    this.#client ??= this.#openClient();
    return this.#client;
  }

  /** By id or by name. */
  async sandbox(idOrName: string): Promise<Sandbox> {
    const client = await this.client();
    const sandbox = await Sandbox.connect(await this.sandboxId(idOrName), { client });
    const leaseToken = this.#leaseTokenFor(sandbox.id);
    return leaseToken === undefined ? sandbox : sandbox.withLeaseToken(leaseToken);
  }

  async sandboxId(idOrName: string): Promise<string> {
    if (isId('sandbox', idOrName)) return idOrName;
    const client = await this.client();
    for await (const view of client.sandboxes.iterate({ namePrefix: idOrName, limit: pageLimit })) {
      if (view.name === idOrName) return view.id;
    }
    throw new PlatformError('sandbox_not_found', `There is no sandbox with the id or name "${idOrName}".`);
  }

  /** What the options bind a mutation to. */
  conditions(): Conditions {
    const { idempotencyKey, leaseToken, generation, ifMatch } = this.options as {
      idempotencyKey?: string;
      leaseToken?: number;
      generation?: number;
      ifMatch?: number;
    };
    return {
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      ...(leaseToken !== undefined && { leaseToken }),
      ...(generation !== undefined && { generation }),
      ...(ifMatch !== undefined && { expectedVersion: ifMatch }),
    };
  }

  /** The result: as JSON with `--json`, else for people. Nothing else goes to stdout. */
  async print(value: unknown, human: () => string): Promise<void> {
    await this.io.stdout.write(this.isJson ? `${JSON.stringify(value)}\n` : human());
  }

  /** What is good to know beside the result; never on stdout. */
  async note(text: string): Promise<void> {
    await this.io.stderr.write(`${text}\n`);
  }

  async #openClient(): Promise<Atoll> {
    const { io, options } = this;
    let { url, key } = options;
    if (url === undefined || key === undefined) {
      const found = await (await io.loadApp()).findLocalServer(options.data);
      // A key of this machine's server is not sent to another one.
      if (url === undefined) key ??= found?.apiKey;
      else if (sameServer(url, found?.url)) key ??= found?.apiKey;
      url ??= found?.url;
    }
    if (url === undefined) throw notConfigured('No server is known here.', '--url or ATOLL_URL');
    if (key === undefined) throw notConfigured(`No key for ${url} is known here.`, '--key or ATOLL_API_KEY');
    return new Atoll({ url, apiKey: key, retries, ...(io.fetch && { fetch: io.fetch }) });
  }

  /** Inside `atoll lease run`, commands on that sandbox carry its token by themselves. */
  #leaseTokenFor(sandboxId: string): number | undefined {
    const { ATOLL_LEASE_RESOURCE: resource, ATOLL_LEASE_TOKEN: token } = this.io.env;
    return resource === sandboxId && token !== undefined && /^\d+$/.test(token) ? Number(token) : undefined;
  }
}

function nameOf(command: Command): string {
  const names: string[] = [];
  for (let at = command; at.parent !== null; at = at.parent) names.unshift(at.name());
  return names.join(' ');
}

function wordsBehindDashes(command: Command): number | undefined {
  let root = command;
  while (root.parent !== null) root = root.parent;
  const words = (root as Command & { readonly rawArgs: readonly string[] }).rawArgs;
  const index = words.indexOf('--');
  return index === -1 ? undefined : words.length - index - 1;
}

function sameServer(a: string, b: string | undefined): boolean {
  return b !== undefined && URL.canParse(a) && new URL(a).origin === new URL(b).origin;
}

function notConfigured(message: string, how: string): CliError {
  return new CliError(message, {
    exitCode: exitCodes.notConfigured,
    code: 'not_configured',
    hint: `Start one with "atoll serve" (as the same user, with the same --data), or give ${how}.`,
  });
}
