/** What can be written to a file, and what comes back. */

export type ByteStream = AsyncIterable<Uint8Array> | ReadableStream<Uint8Array>;
export type FileData = string | Uint8Array | Blob | ByteStream;

/** A body for fetch. Text and bytes can be sent again, a stream cannot. */
export function contentOf(data: FileData): Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array> {
  if (typeof data === 'string') return new TextEncoder().encode(data);
  if (data instanceof Uint8Array) return data as Uint8Array<ArrayBuffer>;
  if (data instanceof Blob || data instanceof ReadableStream) return data;
  return streamOf(data);
}

function streamOf(chunks: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = chunks[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** Owner of a file: names or ids. */
export interface FileOwner {
  readonly user: string | number;
  readonly group?: string | number;
}

export function ownerText(owner: FileOwner): string {
  return owner.group === undefined ? String(owner.user) : `${owner.user}:${owner.group}`;
}

export function modeText(mode: number): string {
  return mode.toString(8).padStart(3, '0');
}
