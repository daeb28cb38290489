/** `filesystem.Filesystem`: what is done with files without their bytes, as root, for the user that the request names. */
import { posix } from 'node:path';
import { fileLimits, isPlatformError } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import { type Account, type Accounts, placeOf } from './accounts.ts';
import type { Directories } from './directories.ts';
import type { Entries } from './entries.ts';
import { EnvdError } from './envd-error.ts';
import { eventsBelow, type WatchWanted } from './file-events.ts';
import type { Message } from './messages.ts';
import type { Call, Method } from './rpc.ts';
import type { Watchers } from './watchers.ts';

const pageSize = 1_000;
/** Of one list, which is answered whole. */
const listMax = 100_000;
/** Of its entries. */
const looksAtOnce = 8;

interface Input {
  readonly path: string;
  readonly source: string;
  readonly destination: string;
  readonly depth: number;
  readonly recursive: boolean;
  readonly includeEntry: boolean;
  readonly watcherId: string;
}

export interface FilesystemParts {
  readonly files: ControlPort['files'];
  readonly accounts: Accounts;
  readonly entries: Entries;
  readonly directories: Directories;
  readonly watchers: Watchers;
}

export class FilesystemService {
  readonly #parts: FilesystemParts;

  constructor(parts: FilesystemParts) {
    this.#parts = parts;
  }

  methods(): Readonly<Record<string, Method>> {
    const unary = (input: string, output: string, run: (call: Call, input: Input) => Promise<Message>): Method => ({
      kind: 'unary',
      input: `filesystem.${input}`,
      output: `filesystem.${output}`,
      run: (call, message) => run(call, message as unknown as Input),
    });
    return {
      Stat: unary('PathRequest', 'EntryResponse', (call, input) => this.#stat(call, input)),
      MakeDir: unary('PathRequest', 'EntryResponse', (call, input) => this.#makeDir(call, input)),
      Move: unary('MoveRequest', 'EntryResponse', (call, input) => this.#move(call, input)),
      ListDir: unary('ListDirRequest', 'ListDirResponse', (call, input) => this.#listDir(call, input)),
      Remove: unary('PathRequest', 'Empty', (call, input) => this.#remove(call, input)),
      WatchDir: {
        kind: 'server stream',
        input: 'filesystem.WatchRequest',
        output: 'filesystem.WatchDirResponse',
        keepalive: { keepalive: {} },
        run: (call, message) => this.#watchDir(call, message as unknown as Input),
      },
      CreateWatcher: unary('WatchRequest', 'WatcherRequest', async (call, input) => {
        const watched = await this.#watched(call, input);
        return { watcherId: await this.#parts.watchers.create(call, (signal) => this.#events(call, watched, signal)) };
      }),
      GetWatcherEvents: unary('WatcherRequest', 'WatcherEvents', async (call, { watcherId }) => ({
        events: this.#parts.watchers.take(call, watcherId),
      })),
      RemoveWatcher: unary('WatcherRequest', 'Empty', async (call, { watcherId }) => {
        this.#parts.watchers.remove(call, watcherId);
        return {};
      }),
    };
  }

  async #stat(call: Call, input: Input): Promise<Message> {
    const { path } = await this.#place(call, input.path);
    return { entry: await this.#entry(call, path) };
  }

  async #makeDir(call: Call, input: Input): Promise<Message> {
    const { entries, directories } = this.#parts;
    const { path, user } = await this.#place(call, input.path);
    const found = await entries.find(call, path, { follow: true });
    if (found?.type === 'directory') throw new EnvdError('already_exists', `directory already exists: ${path}`);
    await directories.ensure(call, path, user);
    return { entry: await this.#entry(call, path) };
  }

  async #move(call: Call, { source, destination }: Input): Promise<Message> {
    const { files, directories, entries } = this.#parts;
    const { path: from, user } = await this.#place(call, source);
    const to = placeOf(destination, user);
    if ((await entries.find(call, from)) === undefined) throw missing(from);
    await directories.ensure(call, posix.dirname(to), user);
    await files.move(call.caller, call.sandboxId, {}, { from, to, replace: true });
    return { entry: await this.#entry(call, to) };
  }

  async #remove(call: Call, input: Input): Promise<Message> {
    const { path } = await this.#place(call, input.path);
    try {
      await this.#parts.files.remove(call.caller, call.sandboxId, {}, { path, recursive: 'true' });
    } catch (error) {
      if (!isPlatformError(error, 'file_not_found', 'not_a_directory')) throw error;
    }
    return {};
  }

  async #listDir(call: Call, input: Input): Promise<Message> {
    const { files, entries } = this.#parts;
    const { path } = await this.#place(call, input.path);
    const depth = input.depth === 0 ? 1 : input.depth;
    if (depth > fileLimits.depth) throw new EnvdError('invalid_argument', `A depth is at most ${fileLimits.depth}.`);
    await this.#checkDirectory(call, path);
    const found: Message[] = [];
    for (let cursor: string | undefined; ; ) {
      const query = { path, depth, limit: pageSize, ...(cursor !== undefined && { cursor }) };
      const page = await files.list(call.caller, call.sandboxId, {}, query);
      for (let at = 0; at < page.items.length; at += looksAtOnce) {
        // Each entry is several questions to the sandbox: nobody asks them for a caller who has left.
        call.signal.throwIfAborted();
        const some = page.items.slice(at, at + looksAtOnce);
        found.push(...(await Promise.all(some.map((view) => entries.of(call, view)))));
      }
      if (page.nextCursor === null) return { entries: found };
      if (found.length >= listMax) throw new EnvdError('resource_exhausted', `A list has at most ${listMax} entries.`);
      cursor = page.nextCursor;
    }
  }

  async *#watchDir(call: Call, input: Input): AsyncGenerator<Message, void> {
    const watched = await this.#watched(call, input);
    for await (const event of this.#events(call, watched, call.signal)) {
      yield event === 'armed' ? { start: {} } : { filesystem: event };
    }
  }

  async #watched(call: Call, input: Input): Promise<WatchWanted> {
    const { path } = await this.#place(call, input.path);
    await this.#checkDirectory(call, path);
    return { path, recursive: input.recursive, includeEntry: input.includeEntry };
  }

  #events(call: Call, wanted: WatchWanted, signal: AbortSignal) {
    return eventsBelow(this.#parts, call, wanted, signal);
  }

  async #checkDirectory(call: Call, path: string): Promise<void> {
    const found = await this.#parts.entries.find(call, path, { follow: true });
    if (found === undefined) throw missing(path);
    if (found.type !== 'directory') throw new EnvdError('invalid_argument', `path is not a directory: ${path}`);
  }

  async #entry(call: Call, path: string): Promise<Message> {
    try {
      return await this.#parts.entries.get(call, path);
    } catch (error) {
      if (isPlatformError(error, 'file_not_found', 'not_a_directory')) throw missing(path);
      throw error;
    }
  }

  async #place(call: Call, path: string): Promise<{ readonly path: string; readonly user: Account }> {
    const user = await this.#parts.accounts.userOf(call, call.user);
    return { user, path: placeOf(path, user) };
  }
}

function missing(path: string): EnvdError {
  return new EnvdError('not_found', `path '${path}' does not exist`);
}
