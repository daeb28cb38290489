/** How a request leaves: through fetch, or what a platform has that is quicker. fetch itself is one of these. */
export type Send = (url: string, request: SentRequest) => Promise<Answer>;

export interface SentRequest {
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body?: SentBody;
  /** fetch asks for it where the body is a stream. */
  readonly duplex?: 'half';
  readonly signal?: AbortSignal;
}

export type SentBody = string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>;

/** What is used of fetch's `Response`. Its content is taken once. */
export interface Answer {
  readonly ok: boolean;
  readonly status: number;
  readonly url: string;
  readonly headers: { get(name: string): string | null };
  readonly body: ReadableStream<Uint8Array<ArrayBuffer>> | null;
  /** In place of `body`, where the platform has something quicker. */
  reader?(): ContentReader;
  json(): Promise<unknown>;
  arrayBuffer(): Promise<ArrayBuffer>;
}

/** What is used of the reader of a stream. */
export interface ContentReader {
  read(): Promise<{ readonly done: boolean; readonly value?: Uint8Array<ArrayBuffer> | undefined }>;
  cancel(): Promise<void>;
}
