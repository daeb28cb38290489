/** Files in memory, for tests of the server and the SDK: content by path, and nothing else of a file system. */
import { type FileContent, type FileEntry, newId, PlatformError } from '../../src/protocol/index.ts';
import type { ControlPort } from '../../src/server/control-port.ts';

export function fakeFileEntry(path: string, sizeBytes: number): FileEntry {
  return {
    path,
    pathBase64: null,
    type: 'file',
    sizeBytes,
    mode: 0o644,
    uid: 0,
    gid: 0,
    modifiedAtMs: 1_000,
    etag: `a.${sizeBytes}`,
    linkTarget: null,
  };
}

export class FakeControlFiles {
  readonly contents = new Map<string, Buffer>();
  /** Replaced by a test that wants a stream of its own. */
  onRead: ((path: string) => AsyncIterable<Uint8Array>) | undefined;
  /** Called before anything of the body is taken. */
  onWrite: () => Promise<void> = async () => {};

  readonly port: ControlPort['files'] = {
    read: async (_caller, _sandboxId, _conditions, { path, offset, length }): Promise<FileContent> => {
      const all = this.#get(path);
      const start = offset < 0 ? Math.max(0, all.length + offset) : offset;
      if (start > 0 && start >= all.length) {
        throw new PlatformError('range_not_satisfiable', 'Behind the end.', { details: { sizeBytes: all.length } });
      }
      const part = all.subarray(start, length === null ? undefined : start + length);
      const bytes = this.onRead?.(path) ?? once(part);
      return { entry: fakeFileEntry(path, all.length), offset: start, length: part.length, bytes };
    },
    write: async (_caller, _sandboxId, _conditions, { path, append, expected }, bytes) => {
      await this.onWrite();
      if (expected.kind === 'absent' && this.contents.has(path))
        throw new PlatformError('file_exists', 'There is one.');
      if (expected.kind === 'etag' && expected.etag !== `a.${this.#get(path).length}`) {
        throw new PlatformError('file_changed', 'Another one.');
      }
      const chunks: Uint8Array[] = append === 'true' ? [this.#get(path)] : [];
      for await (const chunk of bytes) chunks.push(Buffer.from(chunk));
      this.contents.set(path, Buffer.concat(chunks));
      return viewOf(path, this.#get(path).length);
    },
    stat: async (_caller, _sandboxId, _conditions, { path }) => viewOf(path, this.#get(path).length),
    list: async () => ({
      items: [...this.contents].map(([path, { length }]) => viewOf(path, length)),
      nextCursor: null,
    }),
    changes: async () => ({ items: [], cursor: newId('mark'), hasMore: false }),
    labels: async () => ({ labels: {} }),
    setLabels: async () => {},
    makeDirectory: async (_caller, _sandboxId, _conditions, { path }) => viewOf(path, 0),
    move: async (_caller, _sandboxId, _conditions, { to }) => viewOf(to, 0),
    copy: async (_caller, _sandboxId, _conditions, { to }) => viewOf(to, 0),
    remove: async (_caller, _sandboxId, _conditions, { path }) => {
      this.#get(path);
      this.contents.delete(path);
    },
    changeAttributes: async (_caller, _sandboxId, _conditions, { path }) => viewOf(path, this.#get(path).length),
    downloadTree: async (_caller, _sandboxId, _conditions, { path }) => ({ bytes: once(this.#get(path)) }),
    uploadTree: async (_caller, _sandboxId, _conditions, { path }, tar) => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of tar) chunks.push(Buffer.from(chunk));
      this.contents.set(path, Buffer.concat(chunks));
      return { bytes: this.#get(path).length };
    },
    watch: async function* () {
      yield { kind: 'armed' as const };
      yield { kind: 'created' as const, path: '/workspace/a' };
    },
  };

  #get(path: string): Buffer {
    const found = this.contents.get(path);
    if (found === undefined) throw new PlatformError('file_not_found', `There is no ${path}.`);
    return found;
  }
}

function viewOf(path: string, sizeBytes: number) {
  const { modifiedAtMs, mode, ...rest } = fakeFileEntry(path, sizeBytes);
  return { ...rest, mode: mode.toString(8), modifiedAt: new Date(modifiedAtMs).toISOString() };
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array, void> {
  if (bytes.byteLength > 0) yield bytes;
}
