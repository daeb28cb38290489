/** The file part of a node: admits orders and hands them to the sandbox's file workers. */
import {
  type FileContext,
  fileAction,
  fileChanges,
  type InitClient,
  readFile,
  readTree,
  watchFiles,
  writeFile,
  writeTree,
} from '../execution/index.ts';
import {
  type FileAction,
  type FileActionKind,
  type FileActionOrder,
  type FileAnswers,
  type FileChanges,
  type FileChangesOrder,
  type FileContent,
  type FileEntry,
  type FileEvent,
  type FileOrder,
  type LifeOrder,
  type NodeFiles,
  PlatformError,
  type ReadFileOrder,
  type ReadTreeOrder,
  type WatchFilesOrder,
  type WriteFileOrder,
  type WriteTreeOrder,
  type WrittenTree,
} from '../protocol/index.ts';
import { FileMarks } from './file-marks.ts';
import type { NodeRecord } from './node-record.ts';
import { admitExec, admitLook } from './order-rules.ts';
import type { CheckoutFiles } from './workspaces/checkout-files.ts';
import { sandboxCheckout } from './workspaces/sandbox-checkout.ts';

/** The sandbox as the node has it now; refuses when there is none. */
export type FindSandbox = (order: FileOrder) => {
  readonly record: NodeRecord;
  readonly client: InitClient | undefined;
  /** The sandbox's own, on this machine. */
  readonly directory: string;
  readonly nowMs: number;
};

const looks: ReadonlySet<FileActionKind> = new Set(['stat', 'list', 'labels']);

export class FileCalls implements NodeFiles {
  readonly #find: FindSandbox;

  constructor(find: FindSandbox) {
    this.#find = find;
  }

  async fileAction<Kind extends FileActionKind>(order: FileActionOrder<Kind>): Promise<FileAnswers[Kind]> {
    const action: FileAction = order.action;
    checkPaths('path' in action ? [action.path] : [action.from, action.to]);
    const context = looks.has(action.kind) ? this.#look(order) : this.#change(order);
    return await fileAction<Kind>(context, order.action);
  }

  async fileChanges(order: FileChangesOrder): Promise<FileChanges> {
    checkPaths([order.path]);
    const context = this.#look(order);
    const { directory, nowMs } = this.#find(order);
    return await fileChanges(context, order, { marks: new FileMarks(directory), nowMs });
  }

  async readFile(order: ReadFileOrder, signal?: AbortSignal): Promise<FileContent> {
    checkPaths([order.path]);
    return await readFile(this.#look(order), order, signal);
  }

  async writeFile(order: WriteFileOrder, bytes: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<FileEntry> {
    checkPaths([order.path]);
    return await writeFile(this.#change(order), order, bytes, signal);
  }

  async readTree(order: ReadTreeOrder, signal?: AbortSignal): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }> {
    checkPaths([order.path]);
    return await readTree(this.#look(order), order.path, signal);
  }

  async writeTree(order: WriteTreeOrder, tar: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<WrittenTree> {
    checkPaths([order.path]);
    return await writeTree(this.#change(order), order.path, tar, signal);
  }

  async *watchFiles(order: WatchFilesOrder, signal: AbortSignal): AsyncGenerator<FileEvent, void> {
    checkPaths([order.path]);
    yield* watchFiles(this.#look(order), order, signal);
  }

  /** The files below a path as root sees them, for the platform itself. */
  checkout(order: LifeOrder, path: string): CheckoutFiles {
    checkPaths([path]);
    const context = () => this.#look({ ...order, user: null, leaseToken: null });
    return sandboxCheckout(context, path);
  }

  #look(order: FileOrder): FileContext {
    const { record, client } = this.#find(order);
    admitLook(record, order);
    return contextOf(record, client, order);
  }

  #change(order: FileOrder): FileContext {
    const { record, client } = this.#find(order);
    admitExec(record, order);
    return contextOf(record, client, order);
  }
}

function contextOf(record: NodeRecord, client: InitClient | undefined, order: FileOrder): FileContext {
  if (client === undefined) throw new PlatformError('sandbox_unavailable', 'The sandbox is ending; nothing was done.');
  return { workers: client.files, user: order.user, token: record.settings.leaseToken };
}

function checkPaths(paths: readonly string[]): void {
  for (const path of paths) {
    if (path === '' || path.includes('\0') || Buffer.byteLength(path) > 4_095) {
      throw new PlatformError('invalid_request', 'A path has 1 to 4,095 bytes, without NUL.');
    }
  }
}
