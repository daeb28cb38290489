/** `/files`: the bytes of files, in and out, as streams. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { posix } from 'node:path';
import { createGzip } from 'node:zlib';
import { type Logger, through } from '../../../base/index.ts';
import { type FileContent, isPlatformError } from '../../../protocol/index.ts';
import { parseRange } from '../../byte-range.ts';
import type { ControlPort } from '../../control-port.ts';
import { breakOff } from '../break-off.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { type Account, type Accounts, placeOf } from './accounts.ts';
import { codingOf, decoded } from './content-coding.ts';
import { type Directories, ownerOf } from './directories.ts';
import type { Entries } from './entries.ts';
import { EnvdError } from './envd-error.ts';
import { readWhole, writeSome } from './flow.ts';
import { labelPrefix, labelsIn, prefixed } from './labels.ts';
import type { Message } from './messages.ts';
import { boundaryOf, partsOf } from './multipart.ts';

export interface TransferParts {
  readonly files: ControlPort['files'];
  readonly accounts: Accounts;
  readonly entries: Entries;
  readonly directories: Directories;
  readonly logger: Logger;
}

export interface FileRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly sandbox: EnvdSandbox;
  readonly query: URLSearchParams;
  readonly user: string | undefined;
  /** Aborts when the caller is gone, or the server stops, before it is answered. */
  readonly leaving: AbortSignal;
}

const composeMax = 1_000;
const composeMaxBytes = 1024 * 1024;

export class FileTransfers {
  readonly #parts: TransferParts;

  constructor(parts: TransferParts) {
    this.#parts = parts;
  }

  async download(asked: FileRequest): Promise<void> {
    const { request, response, sandbox, query } = asked;
    const path = placeOf(query.get('path') ?? '', await this.#user(asked));
    const coding = codingOf(request.headers['accept-encoding']);
    if (coding === undefined) throw new EnvdError('invalid_argument', 'no acceptable encoding', { status: 406 });
    const range = coding === 'identity' ? parseRange(request.headers.range) : undefined;
    const wanted = { path, offset: range?.offset ?? 0, length: range?.length ?? null };
    const { leaving } = asked;
    const content = await this.#read(sandbox, wanted, leaving);
    const head = { ...headersOf(content, path), ...(coding === 'gzip' && { 'Content-Encoding': 'gzip' }) };
    const bytes = content.bytes[Symbol.asyncIterator]();
    if (isUnchanged(request, content)) {
      await bytes.return?.();
      response.writeHead(304, head).end();
      return;
    }
    // Files of procfs have no size and content; a file that is really empty says so.
    const first = await bytes.next();
    const length = first.done ? 0 : content.length;
    const last = content.offset + (length ?? 0) - 1;
    response.writeHead(range === undefined ? 200 : 206, {
      ...head,
      ...(length !== null && coding === 'identity' && { 'Content-Length': String(length) }),
      ...(range !== undefined && { 'Content-Range': `bytes ${content.offset}-${last}/${content.entry.sizeBytes}` }),
    });
    if (request.method === 'HEAD') {
      await bytes.return?.();
      response.end();
      return;
    }
    const source = joined(first, bytes);
    try {
      await pour(coding === 'gzip' ? through(source, createGzip()) : source, response);
    } catch (error) {
      breakOff(response);
      if (!leaving.aborted) throw error;
    }
  }

  async upload(asked: FileRequest): Promise<void> {
    const { request, response, query } = asked;
    const type = (request.headers['content-type'] ?? '').toLowerCase();
    const labels = labelsIn(request.headers);
    const user = await this.#user(asked);
    const bytes = decoded(request);
    const written: Message[] = [];
    const write = async (given: string, content: AsyncIterable<Uint8Array>) => {
      const path = placeOf(given, user);
      if (written.some((file) => file['path'] === path)) {
        throw new EnvdError(
          'invalid_argument',
          `you cannot upload multiple files to the same path '${path}' in one upload request`,
        );
      }
      await this.#write(asked, { path, user }, content);
      await this.#label(asked.sandbox, path, labels);
      const has = Object.keys(labels).length > 0;
      written.push({ name: posix.basename(path), path, type: 'file', ...(has && { metadata: labels }) });
    };
    if (type.startsWith('multipart/form-data')) {
      for await (const part of partsOf(bytes, boundaryOf(request.headers['content-type']!))) {
        const target = query.get('path') || part.filename;
        if (part.name === 'file' && target !== undefined) await write(target, part.bytes);
      }
    } else if (type.startsWith('application/octet-stream')) {
      if (!query.get('path')) throw new EnvdError('invalid_argument', 'path is required for application/octet-stream');
      await write(query.get('path')!, bytes);
    } else
      throw new EnvdError(
        'invalid_argument',
        `the content type is multipart/form-data or application/octet-stream, not '${type.slice(0, 100)}'`,
      );
    send(response, written);
  }

  /** Puts files one behind the other, in one that takes their place. */
  async compose(asked: FileRequest): Promise<void> {
    const body = composeBody((await readWhole(asked.request, composeMaxBytes)).toString('utf8'));
    const user = await this.#user({ ...asked, user: body.username ?? asked.user });
    const sources = body.sourcePaths.map((path) => placeOf(path, user));
    const path = placeOf(body.destination, user);
    const { sandbox, response, leaving } = asked;
    const read = (source: string) => this.#read(sandbox, { path: source, offset: 0, length: null }, leaving);
    for (const source of sources) await this.#parts.entries.look(sandbox, source);
    const all = async function* () {
      for (const source of sources) yield* (await read(source)).bytes;
    };
    await this.#write(asked, { path, user }, all());
    const { caller, sandboxId } = sandbox;
    for (const source of new Set(sources)) {
      if (source !== path) await this.#parts.files.remove(caller, sandboxId, {}, { path: source, recursive: 'false' });
    }
    send(response, await this.#parts.entries.get(sandbox, path));
  }

  async #write(
    { sandbox, leaving }: FileRequest,
    target: { readonly path: string; readonly user: Account },
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    const { path, user } = target;
    await this.#parts.directories.ensure(sandbox, posix.dirname(path), user);
    const wanted = {
      path,
      append: 'false',
      parents: 'false',
      owner: ownerOf(user),
      expected: { kind: 'any' },
    } as const;
    const { caller, sandboxId } = sandbox;
    await this.#parts.files.write(caller, sandboxId, {}, wanted, bytes, leaving);
  }

  /** A file has none when it is new. Where the file system keeps none, the file is there without. */
  async #label({ caller, sandboxId }: EnvdSandbox, path: string, labels: Record<string, string>): Promise<void> {
    if (Object.keys(labels).length === 0) return;
    const body = { path, prefix: labelPrefix, labels: prefixed(labels) };
    try {
      await this.#parts.files.setLabels(caller, sandboxId, {}, body);
    } catch (error) {
      if (!isPlatformError(error, 'file_not_usable')) throw error;
      this.#parts.logger.warn('the metadata of a file is not kept', { sandboxId, error });
    }
  }

  async #read(
    { caller, sandboxId }: EnvdSandbox,
    wanted: { readonly path: string; readonly offset: number; readonly length: number | null },
    signal: AbortSignal,
  ): Promise<FileContent> {
    try {
      return await this.#parts.files.read(caller, sandboxId, {}, wanted, signal);
    } catch (error) {
      const { path } = wanted;
      if (isPlatformError(error, 'file_not_found', 'not_a_directory'))
        throw new EnvdError('not_found', `path '${path}' does not exist`);
      if (isPlatformError(error, 'is_a_directory'))
        throw new EnvdError('invalid_argument', `path '${path}' is a directory`);
      if (isPlatformError(error, 'range_not_satisfiable'))
        throw new EnvdError('invalid_argument', error.message, { status: 416 });
      throw error;
    }
  }

  #user({ sandbox, query, user }: FileRequest): Promise<Account> {
    return this.#parts.accounts.userOf(sandbox, query.get('username') || user);
  }
}

function composeBody(text: string) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new EnvdError('invalid_argument', 'The body is not JSON.');
  }
  const { source_paths: sourcePaths, destination, username } = (value ?? {}) as Record<string, unknown>;
  const isGood =
    Array.isArray(sourcePaths) && sourcePaths.length > 0 && sourcePaths.every((path) => typeof path === 'string');
  if (!isGood || sourcePaths.length > composeMax || typeof destination !== 'string') {
    throw new EnvdError('invalid_argument', `It takes 1 to ${composeMax} source_paths and a destination.`);
  }
  return {
    sourcePaths: sourcePaths as string[],
    destination,
    username: typeof username === 'string' ? username : undefined,
  };
}

function send(response: ServerResponse, value: unknown): void {
  response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(value));
}

function headersOf({ entry }: FileContent, path: string): Record<string, string> {
  return {
    'Content-Type': 'application/octet-stream',
    'Content-Disposition': `inline; filename*=UTF-8''${encodeURIComponent(posix.basename(path))}`,
    'Accept-Ranges': 'bytes',
    Vary: 'Accept-Encoding',
    ETag: `"${entry.etag}"`,
    'Last-Modified': new Date(entry.modifiedAtMs).toUTCString(),
  };
}

function isUnchanged({ headers }: IncomingMessage, { entry }: FileContent): boolean {
  const none = headers['if-none-match'];
  if (none !== undefined) return none.split(',').some((tag) => tag.trim() === `"${entry.etag}"` || tag.trim() === '*');
  const since = Date.parse(headers['if-modified-since'] ?? '');
  return Number.isFinite(since) && Math.floor(entry.modifiedAtMs / 1_000) * 1_000 <= since;
}

async function* joined(first: IteratorResult<Uint8Array>, rest: AsyncIterator<Uint8Array>) {
  try {
    for (let item = first; !item.done; item = await rest.next()) yield item.value;
  } finally {
    await rest.return?.();
  }
}

async function pour(source: AsyncIterable<Uint8Array>, response: ServerResponse): Promise<void> {
  for await (const chunk of source) {
    if (response.destroyed) return;
    await writeSome(response, chunk);
  }
  response.end();
}
