/**
 * Files of one sandbox. A path is absolute, or relative to /workspace or, for `session.files`, to where that session is. `user` says with whose
 * rights; root, or the session's user, without it.
 */
import {
  type FileChangeView,
  type FileType,
  type FileView,
  isPlatformError,
  PlatformError,
  type QueryInputOf,
  type ResultOf,
  routes,
} from '../protocol/index.ts';
import type { CallOptions } from './connection.ts';
import { type ByteStream, contentOf, type FileData, type FileOwner, modeText, ownerText } from './file-content.ts';
import { type FileWatch, openWatch, type WatchOptions } from './file-watch.ts';
import type { SandboxBinding } from './processes.ts';
import type { Answer } from './send.ts';

export interface FileOptions {
  readonly user?: string;
  readonly signal?: AbortSignal;
}
/** What changes something may also be bound to a lease, a life, an idempotency key. */
export interface ChangeOptions extends FileOptions, Pick<CallOptions, 'idempotencyKey' | 'leaseToken' | 'generation'> {}

export interface ReadOptions extends FileOptions {
  /** Where to begin; negative: so many bytes from the end. */
  readonly offset?: number;
  readonly length?: number;
}

export interface WriteOptions extends ChangeOptions {
  /** Of a new file, 0o644 without it; a replaced file keeps its own unless it is given. */
  readonly mode?: number;
  readonly owner?: FileOwner;
  /** Makes missing directories; true without it. */
  readonly parents?: boolean;
  /** Only if this is still the file's etag; else `file_changed`. */
  readonly ifMatch?: string;
  /** Only if there is no file; else `file_exists`. */
  readonly ifAbsent?: boolean;
}

export interface FileEntry extends Omit<FileView, 'mode' | 'modifiedAt'> {
  readonly type: FileType;
  readonly mode: number;
  readonly modifiedAt: Date;
}

/** `entry`: as it is now; null when it is gone. */
export interface ChangedFile extends Omit<FileChangeView, 'entry'> {
  readonly entry: FileEntry | null;
}

export interface OpenedFile {
  /** null: not known before it is read. */
  readonly sizeBytes: number | null;
  readonly etag: string;
  readonly modifiedAt: Date;
  readonly mode: number;
  readonly stream: ReadableStream<Uint8Array>;
}

type Routes = typeof routes;

export class Files {
  readonly #binding: SandboxBinding;
  readonly #session: string | undefined;

  /** With `session` its user is the default, and relative paths are below where its shell is when they are used. */
  constructor(binding: SandboxBinding, options: { readonly session?: string } = {}) {
    this.#binding = binding;
    this.#session = options.session;
  }

  async read(path: string, options: ReadOptions = {}): Promise<Uint8Array> {
    const response = await this.#openRead(path, options);
    try {
      return new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      throw brokenOff(path, error, options.signal);
    }
  }

  async readText(path: string, options: ReadOptions = {}): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.read(path, options));
  }

  /** For what is too large to hold. A stream that fails was broken off. */
  async open(path: string, options: ReadOptions = {}): Promise<OpenedFile> {
    const { headers, body } = await this.#openRead(path, options);
    const length = headers.get('content-length');
    return {
      sizeBytes: length === null ? null : Number(length),
      etag: (headers.get('etag') ?? '').replaceAll('"', ''),
      modifiedAt: new Date(headers.get('last-modified') ?? 0),
      mode: Number.parseInt(headers.get('atoll-file-mode') ?? '0', 8),
      stream: body ?? new ReadableStream({ start: (controller) => controller.close() }),
    };
  }

  /** Replaces the file whole or not at all: readers find the old content or the new. */
  write(path: string, data: FileData, options: WriteOptions = {}): Promise<FileEntry> {
    return this.#write(path, data, options, {});
  }

  append(path: string, data: FileData, options: Omit<WriteOptions, 'ifAbsent'> = {}): Promise<FileEntry> {
    return this.#write(path, data, options, { append: 'true' });
  }

  async stat(path: string, options: FileOptions & { readonly followLinks?: boolean } = {}): Promise<FileEntry> {
    const { followLinks, ...rest } = options;
    const query = { path, ...this.#whose(rest), ...(followLinks === false && { followLinks: 'false' as const }) };
    return entryOf(await this.#binding.connection.call(routes.statFile, { ...this.#call(rest), query }));
  }

  /** Whether there is something, a symlink that leads nowhere included. */
  async exists(path: string, options: FileOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, { ...options, followLinks: false });
      return true;
    } catch (error) {
      if (isPlatformError(error, 'file_not_found', 'not_a_directory')) return false;
      throw error;
    }
  }

  /** One page; `nextCursor` asks for the next. */
  async listPage(
    path = '.',
    options: FileOptions & { readonly depth?: number; readonly cursor?: string; readonly limit?: number } = {},
  ): Promise<{ readonly items: readonly FileEntry[]; readonly nextCursor: string | null }> {
    const { user, signal, ...rest } = options;
    const query = { path, ...rest, ...this.#whose({ ...(user !== undefined && { user }) }) };
    const page = await this.#binding.connection.call(routes.listFiles, { ...this.#call({ signal }), query });
    return { items: page.items.map(entryOf), nextCursor: page.nextCursor };
  }

  /** Everything, page by page, in the order of the paths' bytes. */
  async *iterate(
    path = '.',
    options: FileOptions & { readonly depth?: number } = {},
  ): AsyncGenerator<FileEntry, void, undefined> {
    let cursor: string | null = null;
    do {
      const page = await this.listPage(path, { ...options, limit: 1_000, ...(cursor !== null && { cursor }) });
      yield* page.items;
      cursor = page.nextCursor;
    } while (cursor !== null);
  }

  async list(path = '.', options: FileOptions & { readonly depth?: number } = {}): Promise<FileEntry[]> {
    const entries: FileEntry[] = [];
    for await (const entry of this.iterate(path, options)) entries.push(entry);
    return entries;
  }

  /** One page; `cursor` is what to compare with the next time, at once when `hasMore`. */
  async changesPage(
    path = '.',
    options: FileOptions & { readonly since?: string; readonly limit?: number } = {},
  ): Promise<{ readonly items: readonly ChangedFile[]; readonly cursor: string; readonly hasMore: boolean }> {
    const { user, signal, ...rest } = options;
    const query = { path, ...rest, ...this.#whose({ ...(user !== undefined && { user }) }) };
    const page = await this.#binding.connection.call(routes.listFileChanges, { ...this.#call({ signal }), query });
    return { ...page, items: page.items.map(changeOf) };
  }

  /**
   * What differs below a directory from an earlier look: `since` is the cursor that look was answered with, and without it this is the first
   * one. Nothing is missed; what changed within 0.1 s of a look may be told again by the next.
   */
  async changes(
    path = '.',
    options: FileOptions & { readonly since?: string } = {},
  ): Promise<{ readonly changes: readonly ChangedFile[]; readonly cursor: string }> {
    const changes: ChangedFile[] = [];
    for (let since = options.since; ; ) {
      const page = await this.changesPage(path, { ...options, limit: 1_000, ...(since !== undefined && { since }) });
      changes.push(...page.items);
      if (!page.hasMore) return { changes, cursor: page.cursor };
      since = page.cursor;
    }
  }

  async makeDirectory(
    path: string,
    options: ChangeOptions & { readonly parents?: boolean; readonly mode?: number } = {},
  ): Promise<FileEntry> {
    const { parents, mode, ...rest } = options;
    const body = {
      path,
      ...this.#whose(rest),
      ...(parents !== undefined && { parents }),
      ...(mode !== undefined && { mode: modeText(mode) }),
    };
    return entryOf(await this.#binding.connection.call(routes.makeDirectory, { ...this.#call(rest), body }));
  }

  async move(
    from: string,
    to: string,
    options: ChangeOptions & { readonly replace?: boolean } = {},
  ): Promise<FileEntry> {
    const { replace, ...rest } = options;
    const body = { from, to, ...this.#whose(rest), ...(replace !== undefined && { replace }) };
    return entryOf(
      await this.#binding.connection.call(routes.moveFile, { ...this.#call(rest), body, timeoutMs: null }),
    );
  }

  async copy(
    from: string,
    to: string,
    options: ChangeOptions & { readonly recursive?: boolean; readonly replace?: boolean } = {},
  ): Promise<FileEntry> {
    const { replace, recursive, ...rest } = options;
    const body = {
      from,
      to,
      ...this.#whose(rest),
      ...(replace !== undefined && { replace }),
      ...(recursive !== undefined && { recursive }),
    };
    return entryOf(
      await this.#binding.connection.call(routes.copyFile, { ...this.#call(rest), body, timeoutMs: null }),
    );
  }

  /** A directory must be empty, or `recursive` be true. */
  async remove(path: string, options: ChangeOptions & { readonly recursive?: boolean } = {}): Promise<void> {
    const { recursive, ...rest } = options;
    const query = { path, ...this.#whose(rest), ...(recursive && { recursive: 'true' as const }) };
    await this.#binding.connection.call(routes.removeFile, { ...this.#call(rest), query, timeoutMs: null });
  }

  /** Small texts that are kept with the file: its extended attributes below `user.`, named without that. */
  async labels(path: string, options: FileOptions = {}): Promise<Readonly<Record<string, string>>> {
    const query = { path, ...this.#whose(options) };
    return (await this.#binding.connection.call(routes.getFileLabels, { ...this.#call(options), query })).labels;
  }

  /** Those that begin with `prefix` (default: all) and are not among them are removed. */
  async setLabels(
    path: string,
    labels: Readonly<Record<string, string>>,
    options: ChangeOptions & { readonly prefix?: string } = {},
  ): Promise<void> {
    const { prefix, ...rest } = options;
    const body = { path, labels, ...this.#whose(rest), ...(prefix !== undefined && { prefix }) };
    await this.#binding.connection.call(routes.setFileLabels, { ...this.#call(rest), body });
  }

  chmod(path: string, mode: number, options: ChangeOptions = {}): Promise<FileEntry> {
    return this.#changeAttributes(path, { mode: modeText(mode) }, options);
  }

  chown(path: string, owner: FileOwner, options: ChangeOptions = {}): Promise<FileEntry> {
    return this.#changeAttributes(path, { owner: ownerText(owner) }, options);
  }

  /** A directory or file as a tar stream, names relative to it. */
  async download(path: string, options: FileOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const { body } = await this.#binding.connection.open(routes.downloadTree, {
      ...this.#call(options),
      query: { path, ...this.#whose(options) },
      timeoutMs: null,
    });
    if (body === null) throw brokenOff(path, undefined, options.signal);
    return body;
  }

  /** Unpacks a tar stream into a directory, which is made if it is missing. */
  async upload(
    path: string,
    tar: ByteStream | Uint8Array | Blob,
    options: ChangeOptions = {},
  ): Promise<ResultOf<Routes['uploadTree']>> {
    return await this.#binding.connection.call(routes.uploadTree, {
      ...this.#call(options),
      query: { path, ...this.#whose(options) },
      content: contentOf(tar),
      timeoutMs: null,
    });
  }

  /** Resolves when it is armed: what happens from then on is reported. Ends with `close`, `break` or the signal. */
  watch(path = '.', options: WatchOptions = {}): Promise<FileWatch> {
    return openWatch(this.#binding, path, { ...options, ...this.#whose(options) });
  }

  #openRead(path: string, options: ReadOptions): Promise<Answer> {
    const { offset = 0, length } = options;
    if (length === 0) throw new PlatformError('invalid_request', 'A length is at least 1.');
    const isRange = offset !== 0 || length !== undefined;
    const range = offset < 0 ? `bytes=${offset}` : `bytes=${offset}-${length === undefined ? '' : offset + length - 1}`;
    return this.#binding.connection.openAgain(
      routes.readFile,
      { ...this.#call(options), query: { path, ...this.#whose(options) }, timeoutMs: null },
      { Accept: 'application/octet-stream', ...(isRange && { Range: range }) },
    );
  }

  async #write(
    path: string,
    data: FileData,
    options: WriteOptions,
    how: Partial<QueryInputOf<Routes['writeFile']>>,
  ): Promise<FileEntry> {
    const { mode, owner, parents, ifMatch, ifAbsent, ...rest } = options;
    const query = {
      path,
      ...how,
      ...this.#whose(rest),
      ...(mode !== undefined && { mode: modeText(mode) }),
      ...(owner !== undefined && { owner: ownerText(owner) }),
      ...(parents === false && { parents: 'false' as const }),
    };
    const headers = {
      ...(ifMatch !== undefined && { 'If-Match': `"${ifMatch}"` }),
      ...(ifAbsent && { 'If-None-Match': '*' }),
    };
    const call = { ...this.#call(rest), query, content: contentOf(data), headers, timeoutMs: null };
    return entryOf(await this.#binding.connection.call(routes.writeFile, call));
  }

  async #changeAttributes(
    path: string,
    change: { readonly mode?: string; readonly owner?: string },
    options: ChangeOptions,
  ): Promise<FileEntry> {
    const body = { path, ...change, ...this.#whose(options) };
    return entryOf(await this.#binding.connection.call(routes.changeFileAttributes, { ...this.#call(options), body }));
  }

  #whose(options: { readonly user?: string }): { readonly user?: string; readonly session?: string } {
    const { user } = options;
    return { ...(user !== undefined && { user }), ...(this.#session !== undefined && { session: this.#session }) };
  }

  #call(options: { readonly signal?: AbortSignal | undefined } & Omit<ChangeOptions, 'signal'>) {
    const { signal, idempotencyKey, leaseToken, generation } = options;
    const bound = this.#binding.bound({
      ...(signal && { signal }),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      ...(leaseToken !== undefined && { leaseToken }),
      ...(generation !== undefined && { generation }),
    });
    return { params: { sandboxId: this.#binding.sandboxId }, ...bound };
  }
}

function entryOf(view: FileView): FileEntry {
  return { ...view, mode: Number.parseInt(view.mode, 8), modifiedAt: new Date(view.modifiedAt) };
}

function changeOf(view: FileChangeView): ChangedFile {
  return { ...view, entry: view.entry === null ? null : entryOf(view.entry) };
}

function brokenOff(path: string, cause: unknown, signal: AbortSignal | undefined): unknown {
  if (signal?.aborted) return signal.reason;
  return new PlatformError('server_unreachable', `The content of ${path} broke off.`, { cause });
}
