/**
 * Webhooks: events pushed to an address, in order, each at least once. A webhook has a cursor in the store; what fails is
 * tried again with growing pauses, and nothing behind it is sent before it.
 */
import { createHmac } from 'node:crypto';
import {
  type BodyOf,
  type Conditions,
  newId,
  PlatformError,
  type ResultOf,
  type routes,
  type WebhookId,
} from '../protocol/index.ts';
import type { EventRecord, WebhookRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import type { ControlContext } from './context.ts';
import { eventViewOf } from './events.ts';
import type { Mutations, Operation } from './mutations.ts';

const webhooksPerTeam = 100;
const deliveryBatch = 100;
const firstPauseMs = 1_000;
const longestPauseMs = 10 * 60_000;

export interface Delivery {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}
/** Sends one delivery; throws unless the receiver took it. Passed in: control itself speaks no HTTP. */
export type Deliver = (delivery: Delivery, signal: AbortSignal) => Promise<void>;

export class Webhooks {
  readonly #context: ControlContext;
  readonly #mutations: Mutations;
  readonly #deliver: Deliver;

  constructor(context: ControlContext, parts: { mutations: Mutations; deliver: Deliver }) {
    this.#context = context;
    this.#mutations = parts.mutations;
    this.#deliver = parts.deliver;
  }

  create(
    caller: Caller,
    conditions: Conditions,
    body: BodyOf<typeof routes.createWebhook>,
  ): Promise<ResultOf<typeof routes.createWebhook>> {
    return this.#mutations.run({
      caller,
      kind: 'createWebhook',
      conditions,
      request: body,
      subject: () => newId('webhook', this.#context.random),
      effect: async (operation) => {
        const record = await this.#context.store.transact(async (tables) => {
          const id = operation.subjectId as WebhookId;
          const found = await tables.webhooks.find(id);
          if (found !== undefined) return found;
          if ((await tables.webhooks.list(caller.teamId)).length >= webhooksPerTeam) {
            throw new PlatformError('limit_exceeded', `A team has at most ${webhooksPerTeam} webhooks.`);
          }
          const made: WebhookRecord = {
            id,
            teamId: caller.teamId,
            url: body.url,
            secret: this.#secretOf(operation),
            kinds: body.kinds,
            createdAtMs: this.#context.clock.nowMs(),
            cursor: (await tables.events.range()).last,
            failures: 0,
            nextAttemptAtMs: 0,
            lastError: null,
          };
          await tables.webhooks.put(made);
          return made;
        });
        return { ...viewOf(record), secret: record.secret };
      },
      keep: ({ secret: _, ...view }) => view,
      restore: (kept, operation) => ({ ...(kept as ReturnType<typeof viewOf>), secret: this.#secretOf(operation) }),
    });
  }

  async list(caller: Caller): Promise<ResultOf<typeof routes.listWebhooks>> {
    const found = await this.#context.store.read((tables) => tables.webhooks.list(caller.teamId));
    return { items: found.map(viewOf) };
  }

  delete(caller: Caller, conditions: Conditions, id: WebhookId): Promise<void> {
    return this.#mutations.run({
      caller,
      kind: 'deleteWebhook',
      conditions,
      request: { id },
      effect: () =>
        this.#context.store.transact(async (tables) => {
          const found = await tables.webhooks.find(id);
          if (found?.teamId !== caller.teamId)
            throw new PlatformError('webhook_not_found', `There is no webhook ${id}.`);
          await tables.webhooks.remove(id);
        }),
      keep: () => null,
      restore: () => undefined,
    });
  }

  /** Delivers what is due; one webhook's trouble does not hold up another. Answers when the next attempt is due. */
  async tick(signal: AbortSignal): Promise<number | undefined> {
    const all = await this.#context.store.read((tables) => tables.webhooks.list());
    const next = await Promise.all(all.map((webhook) => this.#deliverDue(webhook, signal)));
    const times = next.filter((time) => time !== undefined);
    return times.length === 0 ? undefined : Math.min(...times);
  }

  async #deliverDue(webhook: WebhookRecord, signal: AbortSignal): Promise<number | undefined> {
    let current = webhook;
    while (!signal.aborted) {
      if (current.nextAttemptAtMs > this.#context.clock.nowMs()) return current.nextAttemptAtMs;
      const { teamId, cursor } = current;
      const events = await this.#context.store.read((tables) =>
        tables.events.list({ teamId, after: cursor, limit: deliveryBatch }),
      );
      if (events.length === 0) return undefined;
      for (const event of events) {
        const isWanted = current.kinds.length === 0 || current.kinds.includes(event.kind);
        const error = isWanted ? await this.#send(current, event, signal) : undefined;
        if (signal.aborted) return undefined;
        const moved =
          error === undefined ? delivered(current, event) : failed(current, error, this.#context.clock.nowMs());
        if (!(await this.#write(moved))) return undefined;
        current = moved;
        if (error !== undefined) return current.nextAttemptAtMs;
      }
    }
    return undefined;
  }

  async #send(webhook: WebhookRecord, event: EventRecord, signal: AbortSignal): Promise<string | undefined> {
    const body = JSON.stringify(eventViewOf(event));
    const time = Math.floor(this.#context.clock.nowMs() / 1000);
    const signature = createHmac('sha256', webhook.secret).update(`${time}.${body}`).digest('hex');
    const headers = {
      'Content-Type': 'application/json',
      'Atoll-Event': event.kind,
      'Atoll-Event-Id': String(event.sequence),
      'Atoll-Signature': `t=${time},v1=${signature}`,
    };
    try {
      await this.#deliver({ url: webhook.url, headers, body }, signal);
      return undefined;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  /** False if it was deleted meanwhile. */
  #write(webhook: WebhookRecord): Promise<boolean> {
    return this.#context.store.transact(async (tables) => {
      if ((await tables.webhooks.find(webhook.id)) === undefined) return false;
      await tables.webhooks.put(webhook);
      return true;
    });
  }

  #secretOf(operation: Operation): string {
    return createHmac('sha256', this.#context.secret).update(`webhook ${operation.id}`).digest('hex');
  }
}

function delivered(webhook: WebhookRecord, event: EventRecord): WebhookRecord {
  return { ...webhook, cursor: event.sequence, failures: 0, nextAttemptAtMs: 0, lastError: null };
}

function failed(webhook: WebhookRecord, error: string, nowMs: number): WebhookRecord {
  const pauseMs = Math.min(firstPauseMs * 2 ** Math.min(webhook.failures, 20), longestPauseMs);
  return {
    ...webhook,
    failures: webhook.failures + 1,
    nextAttemptAtMs: nowMs + pauseMs,
    lastError: error.slice(0, 500),
  };
}

function viewOf(webhook: WebhookRecord) {
  const { id, url, cursor, failures, lastError } = webhook;
  return {
    id,
    url,
    kinds: [...webhook.kinds],
    createdAt: new Date(webhook.createdAtMs).toISOString(),
    cursor,
    failures,
    lastError,
  };
}
