/**
 * The part of NodeApi that is about files. Every path is resolved inside the sandbox, by a process of the sandbox, so a symlink there leads
 * nowhere that a command of the same user could not go. Bytes travel as streams; whoever reads them sets the pace.
 *
 * Rules every implementation keeps:
 *  - An order that changes something is admitted like a command: the life it names, the lease token.
 *  - `sandbox_unavailable` promises that nothing was changed; a change whose answer is lost is `outcome_unknown`; a look is tried again.
 *  - A write that replaces is all or nothing: until it has ended well, readers find the old content.
 */
import type { LifeOrder } from './node-api.ts';

/** Who asks, of which life. `path` and its like are absolute, or relative to /workspace. */
export interface FileOrder extends LifeOrder {
  /** Name or id; null: root. */
  readonly user: string | null;
  /** As in `ExecOrder`; looked at where something changes. */
  readonly leaseToken: number | null;
}

/** `other`: a FIFO, a socket or a device; nothing of ours opens one. */
export const fileTypes = ['file', 'directory', 'symlink', 'other'] as const;
export type FileType = (typeof fileTypes)[number];

export interface FileEntry {
  /** Of what was asked for, made absolute; in a list, of each entry. */
  readonly path: string;
  /** Set where the path is not UTF-8: its bytes, in base64. `path` then shows U+FFFD for what is not. */
  readonly pathBase64: string | null;
  readonly type: FileType;
  readonly sizeBytes: number;
  /** The permission bits, setuid, setgid and sticky included. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
  readonly modifiedAtMs: number;
  /** Changes with the file's content, owner, mode or name: made of inode and ctime. */
  readonly etag: string;
  /** Of a symlink. */
  readonly linkTarget: string | null;
}

/** What changes or asks without a stream of bytes. */
export type FileAction =
  | { readonly kind: 'stat'; readonly path: string; readonly followLinks: boolean }
  | {
      readonly kind: 'list';
      readonly path: string;
      /** 1: the directory's own entries. */
      readonly depth: number;
      readonly limit: number;
      /** Entries behind this one: `next` of the page before. */
      readonly after: string | null;
    }
  | { readonly kind: 'makeDirectory'; readonly path: string; readonly mode: number | null; readonly parents: boolean }
  | { readonly kind: 'move'; readonly from: string; readonly to: string; readonly replace: boolean }
  | {
      readonly kind: 'copy';
      readonly from: string;
      readonly to: string;
      readonly recursive: boolean;
      readonly replace: boolean;
    }
  | { readonly kind: 'remove'; readonly path: string; readonly recursive: boolean }
  | {
      readonly kind: 'changeAttributes';
      readonly path: string;
      readonly mode: number | null;
      /** Names or ids. */
      readonly owner: { readonly user: string; readonly group: string | null } | null;
    }
  | { readonly kind: 'labels'; readonly path: string }
  | {
      readonly kind: 'setLabels';
      readonly path: string;
      /** Those that begin so and are not among the new ones are removed. */
      readonly prefix: string;
      readonly labels: Readonly<Record<string, string>>;
    };

export type FileActionKind = FileAction['kind'];

export interface FileList {
  readonly entries: readonly FileEntry[];
  /** Where the next page begins: the bytes of a path below the listed one, in base64. null: this is the end. */
  readonly next: string | null;
}

export interface FileAnswers {
  readonly stat: FileEntry;
  readonly list: FileList;
  readonly makeDirectory: FileEntry;
  readonly move: FileEntry;
  readonly copy: FileEntry;
  readonly remove: null;
  readonly changeAttributes: FileEntry;
  /** Extended attributes by name, without the `user.` that all of them begin with. A file system without any has none. */
  readonly labels: Readonly<Record<string, string>>;
  readonly setLabels: null;
}

export interface FileActionOrder<Kind extends FileActionKind = FileActionKind> extends FileOrder {
  readonly action: Extract<FileAction, { kind: Kind }>;
}

export interface ReadFileOrder extends FileOrder {
  readonly path: string;
  /** Negative: from the end. */
  readonly offset: number;
  /** null: to the end. */
  readonly length: number | null;
}

export interface FileContent {
  readonly entry: FileEntry;
  /** The range that was found; together with `entry.sizeBytes` what `Content-Range` says. */
  readonly offset: number;
  /** null: not known before it is read (procfs says 0 and has more). */
  readonly length: number | null;
  /**
   * To be read or returned: it holds a worker. A failure midway is thrown here. A piece that nobody looks at any more may be given back: its
   * memory then serves the next ones.
   */
  readonly bytes: AsyncIterable<Uint8Array> & { giveBack?(piece: Uint8Array): void };
}

export interface WriteFileOrder extends FileOrder {
  readonly path: string;
  readonly how: 'replace' | 'append';
  /** Of a new file; of a replaced one: null keeps what it has. */
  readonly mode: number | null;
  readonly owner: { readonly user: string; readonly group: string | null } | null;
  readonly parents: boolean;
  /** Of the file as it must be; `absent`: there must be none. */
  readonly expected:
    | { readonly kind: 'any' }
    | { readonly kind: 'absent' }
    | { readonly kind: 'etag'; readonly etag: string };
}

export interface FileChangesOrder extends FileOrder {
  readonly path: string;
  /** `cursor` of the look to compare with; null: this is the first. */
  readonly since: string | null;
  readonly limit: number;
}

/** What differs from the earlier look. Of a directory only what it is itself: what is in it differs by itself. */
export type FileChange =
  | { readonly kind: 'created' | 'modified'; readonly entry: FileEntry }
  | { readonly kind: 'deleted'; readonly path: string; readonly pathBase64: string | null };

export interface FileChanges {
  /** In the order of a list; none in the first look. */
  readonly changes: readonly FileChange[];
  /** This look, to compare with the next time. The newest few of a sandbox are kept. */
  readonly cursor: string;
  /** There were more than `limit`: the rest differs from `cursor` too. */
  readonly hasMore: boolean;
}

export interface ReadTreeOrder extends FileOrder {
  readonly path: string;
}

export interface WriteTreeOrder extends FileOrder {
  /** A directory; made if it is not there. */
  readonly path: string;
}

export interface WrittenTree {
  /** Of the tar stream. */
  readonly bytes: number;
}

export interface WatchFilesOrder extends FileOrder {
  readonly path: string;
  readonly recursive: boolean;
}

/** `armed` comes first: what happens after it is reported. Paths are below the watched one; empty: that itself. */
export type FileEvent =
  | { readonly kind: 'armed' }
  | { readonly kind: 'created' | 'modified' | 'deleted'; readonly path: string }
  /** Both ends are below the watched path; else it is `created` or `deleted`. */
  | { readonly kind: 'moved'; readonly path: string; readonly from: string }
  /** Events were lost: look again at everything. */
  | { readonly kind: 'overflow' };

export interface NodeFiles {
  fileAction<Kind extends FileActionKind>(order: FileActionOrder<Kind>): Promise<FileAnswers[Kind]>;
  /** Every difference is told, some perhaps twice: see FileChanges. Refuses a cursor that is not kept with `output_dropped`. */
  fileChanges(order: FileChangesOrder): Promise<FileChanges>;
  readFile(order: ReadFileOrder, signal?: AbortSignal): Promise<FileContent>;
  /** `bytes` that fail, or a signal that aborts, undo the write. */
  writeFile(order: WriteFileOrder, bytes: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<FileEntry>;
  /** A directory, or one file, as a tar stream. */
  readTree(order: ReadTreeOrder, signal?: AbortSignal): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;
  /** Entries before a failure stay. */
  writeTree(order: WriteTreeOrder, tar: AsyncIterable<Uint8Array>, signal?: AbortSignal): Promise<WrittenTree>;
  /** The first event is `armed`, or there is a refusal in its place; ends when the signal aborts. */
  watchFiles(order: WatchFilesOrder, signal: AbortSignal): AsyncIterable<FileEvent>;
}
