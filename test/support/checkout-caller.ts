/**
 * One caller on a checkout, in this process, against a real server: its requests are seen in order, each with whether the caller held the
 * lock of its cache, and a test can stand between it and the server.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { join } from 'node:path';
import {
  Cache,
  CheckoutResolver,
  type CycleOptions,
  type Definition,
  type FoundCheckout,
  findCheckout,
  loadDefinition,
} from '../../src/checkout/index.ts';
import { openSync } from '../../src/cli/checkout-sync.ts';
import { Atoll, type ClientClock } from '../../src/sdk/index.ts';
import type { CheckoutRig } from './checkout-cli-rig.ts';
import type { Platform } from './platform.ts';

export interface SeenRequest {
  /** `POST /v1/sandboxes`; ids stand as they are. */
  readonly what: string;
  readonly url: string;
  readonly headers: Headers;
  readonly isLocked: boolean;
}

/** Answers in place of the server, or lets `send` do it. */
export type Between = (request: SeenRequest, send: () => Promise<Response>) => Promise<Response>;

export interface CallerOptions {
  readonly config?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly between?: Between;
  readonly clock?: ClientClock;
  /** Where the server seems to be; its requests go to the real one. */
  readonly url?: string;
  readonly retries?: number;
  /** Of the cache; callers of one name share it. */
  readonly machine?: string;
}

export class CheckoutCaller {
  readonly requests: SeenRequest[] = [];
  readonly said: string[] = [];
  readonly steps: string[] = [];
  readonly client: Atoll;
  readonly cache: Cache;
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly resolver: CheckoutResolver;
  /** Called when the lock of the cache is not free. */
  onLockWait: () => void = () => {};
  readonly #locked = new AsyncLocalStorage<true>();
  readonly #state: string;

  private constructor(rig: CheckoutRig, platform: Platform, found: FoundCheckout, options: CallerOptions) {
    this.found = found;
    this.#state = join(rig.directory, `machine-${options.machine ?? 'one'}`);
    this.definition = loadDefinition(found.root, found.identity.configPath);
    const { url: real } = platform.server;
    const { url = real, between = (_, send) => send(), clock, retries } = options;
    this.client = new Atoll({
      url,
      apiKey: platform.key,
      ...(clock && { clock }),
      ...(retries !== undefined && { retries }),
      fetch: (input, init = {}) => {
        const asked = String(input);
        const path = new URL(asked.replace(url, real)).pathname;
        const headers = new Headers(init.headers);
        const isLocked = this.#locked.getStore() === true;
        const request = { what: `${init.method} ${path}`, url: asked, headers, isLocked };
        this.requests.push(request);
        return between(request, () => fetch(asked.replace(url, real), init));
      },
    });
    this.cache = this.#openCache();
    this.resolver = new CheckoutResolver({
      client: this.client,
      cache: this.cache,
      found,
      definition: this.definition,
      nowMs: () => Date.now(),
      say: (text) => this.said.push(text),
      onLockWait: () => this.onLockWait(),
    });
  }

  static async at(
    cwd: string,
    world: { readonly rig: CheckoutRig; readonly platform: Platform },
    options: CallerOptions = {},
  ): Promise<CheckoutCaller> {
    const { config, env, machine } = options;
    const found = await findCheckout({
      cwd,
      env: { ...process.env, ...env },
      ...(config !== undefined && { config }),
      ...(machine !== undefined && { machineId: machine }),
    });
    return new CheckoutCaller(world.rig, world.platform, found, options);
  }

  async cycle(more: Partial<CycleOptions> = {}): Promise<CycleOptions> {
    const { client, resolver, found, definition } = this;
    const sync = await openSync({ found, definition, stateDirectory: this.#state, env: process.env });
    return {
      ...{ client, resolver, found, definition, sync },
      holder: 'caller',
      reason: 'test',
      waitMs: 60_000,
      readyTimeoutMs: 60_000,
      nowMs: () => Date.now(),
      say: (text) => this.said.push(text),
      onWait: () => {},
      onLeaseStep: (step) => this.steps.push(step),
      onProgress: () => {},
      onSetUpOutput: () => {},
      ...more,
    };
  }

  whats(): readonly string[] {
    return this.requests.map(({ what }) => what);
  }

  /** One that refuses to be locked by whoever has it locked. */
  #openCache(): Cache {
    const cache = Cache.open({
      path: join(this.#state, 'checkouts', 'cache.db'),
      nowMs: () => Date.now(),
      owner: { pid: process.pid, command: 'test' },
      warn: (text) => this.said.push(text),
    });
    const withLock = cache.withLock.bind(cache);
    cache.withLock = async (wait, work) => {
      if (this.#locked.getStore()) throw new Error('The lock is taken by a call that holds it.');
      return await withLock(wait, (lock) => this.#locked.run(true, () => work(lock)));
    };
    return cache;
  }
}
