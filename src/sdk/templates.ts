/** Templates: what sandboxes start from, and builds of them. */
import {
  type BodyInputOf,
  type BuildLogItem,
  type BuildView,
  isPlatformError,
  PlatformError,
  type ResultOf,
  routes,
  type TemplateView,
} from '../protocol/index.ts';
import type { CallOptions, Connection } from './connection.ts';
import { contentOf, type FileData } from './file-content.ts';
import { newIdempotencyKey } from './idempotency-key.ts';
import { readServerEvents } from './server-events.ts';

type Look = { readonly signal?: AbortSignal };
export type TemplateSourceInput = BodyInputOf<(typeof routes)['buildTemplate']>['source'];

/** Longer than three heartbeats of the server: the connection is dead. */
const silenceMs = 50_000;
const reconnectMs = 500;
/** How often in a row it is tried in vain. */
const failuresMax = 60;

export class Templates {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Answers when the build has begun; it goes on whoever disconnects. */
  async build(name: string, source: TemplateSourceInput, options: CallOptions = {}): Promise<TemplateBuild> {
    const call = { idempotencyKey: newIdempotencyKey(), ...options };
    const view = await this.#connection.call(routes.buildTemplate, { body: { name, source }, ...call });
    return new TemplateBuild(this.#connection, view);
  }

  /** A tar of the files that a definition copies from; the id goes into its source. */
  async uploadContext(tar: FileData, options: CallOptions = {}): Promise<string> {
    const content = contentOf(tar);
    const { id } = await this.#connection.call(routes.uploadTemplateContext, { content, timeoutMs: null, ...options });
    return id;
  }

  /** A build by its id, running or ended. */
  async findBuild(buildId: string, options: Look = {}): Promise<TemplateBuild> {
    const view = await this.#connection.call(routes.getTemplateBuild, { params: { buildId }, ...options });
    return new TemplateBuild(this.#connection, view);
  }

  async list(options: Look = {}): Promise<ResultOf<(typeof routes)['listTemplates']>['items']> {
    return (await this.#connection.call(routes.listTemplates, options)).items;
  }

  get(name: string, options: Look = {}): Promise<TemplateView> {
    return this.#connection.call(routes.getTemplate, { params: { name }, ...options });
  }

  /** Takes the name away; sandboxes of it go on. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    await this.#connection.call(routes.removeTemplate, { params: { name }, ...options });
  }
}

export class TemplateBuild {
  readonly #connection: Connection;
  #view: BuildView;

  constructor(connection: Connection, view: BuildView) {
    this.#connection = connection;
    this.#view = view;
  }

  get id(): string {
    return this.#view.id;
  }
  /** What the server last said about it. */
  get view(): BuildView {
    return this.#view;
  }

  /** Replay, then live, until it has ended; takes up again by itself where a connection broke. */
  async *log(from: Look & { readonly cursor?: string } = {}): AsyncGenerator<BuildLogItem, void, undefined> {
    const { signal } = from;
    let { cursor } = from;
    for (let failures = 0; ; failures++) {
      signal?.throwIfAborted();
      try {
        for await (const item of this.#open(cursor, signal)) {
          failures = 0;
          cursor = item.cursor;
          if (item.kind === 'ended') this.#view = item.build;
          yield item;
          if (item.kind === 'ended') return;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (!isPlatformError(error) || error.retry === 'never' || failures >= failuresMax) throw error;
      }
      await this.#connection.clock.wait(reconnectMs, signal);
    }
  }

  /** Answers when it has succeeded, and throws what it failed with. */
  async wait(options: Look = {}): Promise<BuildView> {
    for await (const item of this.log(options)) if (item.kind === 'ended') break;
    const { error } = this.#view;
    if (error === null) return this.#view;
    throw new PlatformError(error.code as PlatformError['code'], error.message, { details: error.details });
  }

  async cancel(options: CallOptions = {}): Promise<BuildView> {
    const call = { params: { buildId: this.id }, ...options };
    this.#view = await this.#connection.call(routes.cancelTemplateBuild, call);
    return this.#view;
  }

  async *#open(cursor: string | undefined, given: AbortSignal | undefined): AsyncGenerator<BuildLogItem, void> {
    const broken = new AbortController();
    const signal = given ? AbortSignal.any([given, broken.signal]) : broken.signal;
    const headers = { Accept: 'text/event-stream', ...(cursor !== undefined && { 'Last-Event-ID': cursor }) };
    const request = { params: { buildId: this.id }, signal, timeoutMs: null };
    const response = await this.#connection.open(routes.readTemplateBuildLog, request, headers);
    try {
      for await (const { event, data } of readServerEvents(response, { silenceMs })) {
        if (event === 'error') throw errorIn(data);
        if (data !== '') yield JSON.parse(data) as BuildLogItem;
      }
    } finally {
      broken.abort();
    }
  }
}

function errorIn(data: string): PlatformError {
  const { error } = JSON.parse(data) as { error: { code: PlatformError['code']; message: string; details: object } };
  return new PlatformError(error.code, error.message, { details: { ...error.details } });
}
