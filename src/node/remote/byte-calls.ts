/** Calls to a node whose order may be followed by bytes, or answered with them. A signal that aborts breaks the call off, and its reason is what is told. */
import type { ClientRequest, IncomingMessage } from 'node:http';
import { lost, refusalOf, unreachable } from './call-failures.ts';
import { packOrder } from './file-wire.ts';
import { bytesType, parseJson, readWhole } from './node-wire.ts';
import { type NodeTarget, openCall } from './open-call.ts';

export interface ByteCall {
  readonly method: string;
  readonly order: unknown;
  /** Asking changes nothing that anybody could see, so a lost answer leaves nothing in doubt. */
  readonly asksOnly: boolean;
  readonly bytes?: AsyncIterable<Uint8Array>;
  readonly signal?: AbortSignal | undefined;
}

export class ByteCalls {
  readonly #target: NodeTarget;

  constructor(target: NodeTarget) {
    this.#target = target;
  }

  async json<Result>(call: ByteCall): Promise<Result> {
    const response = await this.send(call);
    try {
      return (parseJson(await readWhole(response)) as { result: Result }).result;
    } catch (error) {
      throw lost(call, error);
    }
  }

  /** Resolves with the head of an answer that is not a refusal. The answer may come before all bytes are sent. */
  async send(call: ByteCall): Promise<IncomingMessage> {
    call.signal?.throwIfAborted();
    let failure: unknown;
    const { outgoing, answered } = openCall(this.#target, {
      ...call,
      headers: { 'content-type': bytesType },
      ownFailure: () => (call.signal?.aborted ? call.signal.reason : failure),
    });
    outgoing.write(packOrder(call.order));
    const isOver = { value: false };
    const sending = sendAll(outgoing, call.bytes, isOver).catch((error: unknown) => {
      // What the caller gave failed: the order is taken back by cutting it off.
      failure = error;
      outgoing.destroy(new Error('The bytes to send failed.'));
    });
    const response = await answered.finally(() => {
      isOver.value = true;
    });
    if (response.statusCode === 200) return response;
    const refusal = await refusalOf(call, response);
    outgoing.destroy();
    await sending;
    throw refusal;
  }
}

async function sendAll(
  outgoing: ClientRequest,
  bytes: AsyncIterable<Uint8Array> | undefined,
  isOver: { readonly value: boolean },
): Promise<void> {
  for await (const chunk of bytes ?? []) {
    if (isOver.value || outgoing.destroyed) return;
    if (outgoing.write(chunk)) continue;
    const { promise, resolve } = Promise.withResolvers<void>();
    outgoing.once('drain', resolve);
    outgoing.once('close', resolve);
    const onResponse = () => resolve();
    outgoing.once('response', onResponse);
    await promise;
    outgoing.off('drain', resolve);
    outgoing.off('close', resolve);
    outgoing.off('response', onResponse);
  }
  outgoing.end();
}

/** A body whose reader may never come: `return` ends the connection also before the first byte is asked for. */
export class ResponseBytes implements AsyncIterableIterator<Uint8Array> {
  readonly #response: IncomingMessage;
  readonly #chunks: AsyncIterator<Buffer>;

  constructor(response: IncomingMessage) {
    this.#response = response;
    this.#chunks = (response as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<IteratorResult<Uint8Array, undefined>> {
    try {
      const item = await this.#chunks.next();
      return item.done ? { done: true, value: undefined } : { done: false, value: item.value };
    } catch (error) {
      throw unreachable(error);
    }
  }

  async return(): Promise<IteratorResult<Uint8Array, undefined>> {
    this.#response.destroy();
    return { done: true, value: undefined };
  }
}
