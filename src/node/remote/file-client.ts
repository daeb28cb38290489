/** The file part of a node that is reached over HTTP. */
import type {
  FileActionKind,
  FileActionOrder,
  FileAnswers,
  FileChanges,
  FileChangesOrder,
  FileContent,
  FileEntry,
  FileEvent,
  NodeFiles,
  ReadFileOrder,
  ReadTreeOrder,
  WatchFilesOrder,
  WriteFileOrder,
  WriteTreeOrder,
  WrittenTree,
} from '../../protocol/index.ts';
import { type ByteCalls, ResponseBytes } from './byte-calls.ts';
import { factsHeader, unpackFacts } from './file-wire.ts';
import { readLines } from './open-call.ts';

export class FileClient implements NodeFiles {
  readonly #calls: ByteCalls;

  constructor(calls: ByteCalls) {
    this.#calls = calls;
  }

  async fileAction<Kind extends FileActionKind>(order: FileActionOrder<Kind>): Promise<FileAnswers[Kind]> {
    const { kind }: { kind: FileActionKind } = order.action;
    return await this.#calls.json({ method: 'fileAction', order, asksOnly: kind === 'stat' || kind === 'list' });
  }

  fileChanges(order: FileChangesOrder): Promise<FileChanges> {
    return this.#calls.json({ method: 'fileChanges', order, asksOnly: true });
  }

  async readFile(order: ReadFileOrder, signal?: AbortSignal): Promise<FileContent> {
    const response = await this.#calls.send({ method: 'readFile', order, asksOnly: true, signal });
    const facts = unpackFacts<Omit<FileContent, 'bytes'>>(response.headers[factsHeader]);
    return { ...facts, bytes: new ResponseBytes(response) };
  }

  writeFile(order: WriteFileOrder, bytes: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<FileEntry> {
    return this.#calls.json({ method: 'writeFile', order, asksOnly: false, bytes, signal });
  }

  async readTree(order: ReadTreeOrder, signal?: AbortSignal): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }> {
    const response = await this.#calls.send({ method: 'readTree', order, asksOnly: true, signal });
    return { bytes: new ResponseBytes(response) };
  }

  writeTree(order: WriteTreeOrder, tar: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<WrittenTree> {
    return this.#calls.json({ method: 'writeTree', order, asksOnly: false, bytes: tar, signal });
  }

  async *watchFiles(order: WatchFilesOrder, signal: AbortSignal): AsyncGenerator<FileEvent, void> {
    yield* readLines<FileEvent>(this.#calls.send({ method: 'watchFiles', order, asksOnly: true, signal }), signal);
  }
}
