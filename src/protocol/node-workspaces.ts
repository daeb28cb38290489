/**
 * What control asks of the node that is a workspace's home: the git object store of its versions. Part of NodeApi; the same rules hold.
 *
 *  - A commit names everything under it and never changes. Which commit is the head is control's to say; here nothing points at one but holds.
 *  - What an answer names is on disk, synced, before the answer. What no hold names may be removed once it is old enough.
 *  - Every order can be repeated: the same arguments give the same commits, and a hold or its release twice is once.
 *  - Content from outside (a bundle, an archive, a remote, a sandbox) is verified as hostile before it can be named, or refused whole with
 *    `workspace_unsafe`. No configuration, hook, filter or attribute of it takes part in what git does here.
 */
import type { WorkspaceId } from './ids.ts';
import type { LifeOrder } from './node-api.ts';

/** 40 hexadecimal digits. */
export type GitObjectId = string;

export interface WorkspaceOrder {
  readonly workspaceId: WorkspaceId;
}

export interface CommitAuthor {
  readonly name: string;
  readonly email: string;
}

export interface WorkspaceCommit {
  readonly commit: GitObjectId;
  readonly tree: GitObjectId;
  readonly parents: readonly GitObjectId[];
  readonly author: CommitAuthor;
  readonly authoredAtMs: number;
  /** Whole, trailers included. */
  readonly message: string;
}

export interface ChangeCounts {
  readonly files: number;
  readonly insertions: number;
  readonly deletions: number;
}

/** One path that differs. Names are as git has them; those that are not UTF-8 carry their bytes in base64 too. */
export interface WorkspaceFileChange {
  readonly path: string;
  readonly pathBase64: string | null;
  readonly kind: 'added' | 'modified' | 'deleted' | 'renamed' | 'typeChanged';
  /** Of a renamed one. */
  readonly from: string | null;
  readonly modeBefore: string | null;
  readonly modeAfter: string | null;
  /** null: binary. */
  readonly insertions: number | null;
  readonly deletions: number | null;
}

/** What one side has at a path; null: nothing is there. */
export interface ConflictSide {
  readonly mode: string;
  readonly blob: GitObjectId;
  readonly sizeBytes: number;
}

export interface WorkspaceConflict {
  readonly path: string;
  /** `content`: both changed the same lines; `modifyDelete`; `addAdd`; `type`: file against directory or symlink; `rename`; `binary`. */
  readonly kind: 'content' | 'modifyDelete' | 'addAdd' | 'type' | 'rename' | 'binary';
  readonly base: ConflictSide | null;
  readonly ours: ConflictSide | null;
  readonly theirs: ConflictSide | null;
}

export type MergeOutcome =
  | { readonly kind: 'merged'; readonly tree: GitObjectId; readonly counts: ChangeCounts }
  | { readonly kind: 'conflicts'; readonly conflicts: readonly WorkspaceConflict[] };

export type ImportSource =
  /** A git bundle; `ref` names one of its heads, null: its HEAD or its only one. */
  | { readonly kind: 'bundle'; readonly ref: string | null }
  /** A tar of a directory; `.git` in it is left out. */
  | { readonly kind: 'archive' };

export interface RemoteOrder extends WorkspaceOrder {
  readonly url: string;
  /** A branch or tag; null: the remote's HEAD. */
  readonly ref: string | null;
  readonly credentials: { readonly username: string; readonly password: string } | null;
}

export interface CommitTreeOrder extends WorkspaceOrder {
  readonly tree: GitObjectId;
  readonly parents: readonly GitObjectId[];
  readonly author: CommitAuthor;
  readonly atMs: number;
  readonly message: string;
  /** Added below the message, one per line: `Atoll-Sandbox: sbx…`. */
  readonly trailers: readonly { readonly name: string; readonly value: string }[];
}

export interface CollectOrder extends WorkspaceOrder {
  /** A sandbox of this node in which no command runs, so that nothing moves. */
  readonly life: LifeOrder;
  /** Where in it the checkout is. `.git` below it is left out, and so is what the base's .gitignore files name unless the base has it. */
  readonly path: string;
  /** What the checkout was made from. */
  readonly base: GitObjectId;
  /** Of `recordBaseline`: what is as it was then is not read again. null, or one that is not kept: everything is read. */
  readonly baseline: string | null;
}

export interface CollectedTree {
  readonly tree: GitObjectId;
  /** Against the base. */
  readonly counts: ChangeCounts;
  /** Special files, nested repositories and the like that git cannot keep; the first hundred. */
  readonly leftOut: readonly string[];
}

export interface NodeWorkspaces {
  /** Makes its object store, empty. */
  create(order: WorkspaceOrder): Promise<void>;
  /** Of an unknown one: succeeds. */
  remove(order: WorkspaceOrder): Promise<void>;
  list(): Promise<readonly WorkspaceId[]>;

  /** An archive becomes one commit without parents, of `author` and `message`. */
  importBytes(
    order: WorkspaceOrder & {
      readonly source: ImportSource;
      readonly author: CommitAuthor;
      readonly message: string;
      readonly atMs: number;
    },
    bytes: AsyncIterable<Uint8Array>,
    signal?: AbortSignal,
  ): Promise<WorkspaceCommit>;
  importRemote(order: RemoteOrder, signal?: AbortSignal): Promise<WorkspaceCommit>;
  /** Moves the remote's branch only from what it was when we looked; `conflict`-like refusals are `workspace_remote_moved`. */
  pushRemote(order: RemoteOrder & { readonly commit: GitObjectId }, signal?: AbortSignal): Promise<void>;
  /**
   * `bundle`: the commit and its history as refs/heads/main, without what `since` has; `archive`: a tar of its files; `checkout`: a tar of its
   * files with a `.git` in which git works (branch `main`, history up to a bound, then shallow).
   */
  exportBytes(
    order: WorkspaceOrder & {
      readonly commit: GitObjectId;
      readonly kind: 'bundle' | 'archive' | 'checkout';
      readonly since: readonly GitObjectId[];
    },
    signal?: AbortSignal,
  ): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;

  getCommit(order: WorkspaceOrder & { readonly commit: GitObjectId }): Promise<WorkspaceCommit>;
  log(
    order: WorkspaceOrder & { readonly commit: GitObjectId; readonly limit: number },
  ): Promise<readonly WorkspaceCommit[]>;
  /** Trees or commits. At most `limit` files; `counts` are of all. */
  diff(
    order: WorkspaceOrder & { readonly from: GitObjectId; readonly to: GitObjectId; readonly limit: number },
  ): Promise<{
    readonly counts: ChangeCounts;
    readonly files: readonly WorkspaceFileChange[];
    readonly hasMore: boolean;
  }>;
  /** The same as a patch that `git apply` takes. */
  patch(
    order: WorkspaceOrder & { readonly from: GitObjectId; readonly to: GitObjectId },
    signal?: AbortSignal,
  ): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;
  readBlob(
    order: WorkspaceOrder & { readonly blob: GitObjectId },
    signal?: AbortSignal,
  ): Promise<{ readonly bytes: AsyncIterable<Uint8Array> }>;

  /** Remembers how the files under `path` look now, which are those of `base`, to be compared with in a sandbox made from these files. */
  recordBaseline(order: CollectOrder & { readonly baseline: string }): Promise<void>;
  forgetBaseline(order: WorkspaceOrder & { readonly baseline: string }): Promise<void>;
  /** The files under `path` as a tree in the workspace's store. */
  collect(order: CollectOrder, signal?: AbortSignal): Promise<CollectedTree>;

  commitTree(order: CommitTreeOrder): Promise<WorkspaceCommit>;
  /** Three-way, of trees or commits; `counts` are against `ours`. Nothing of it is visible. */
  merge(
    order: WorkspaceOrder & { readonly base: GitObjectId; readonly ours: GitObjectId; readonly theirs: GitObjectId },
    signal?: AbortSignal,
  ): Promise<MergeOutcome>;
  /** Keeps objects from being removed, under a name of control's own: `version/12`, `plan/pln…/mbr…`. */
  hold(order: WorkspaceOrder & { readonly name: string; readonly object: GitObjectId }): Promise<void>;
  release(order: WorkspaceOrder & { readonly names: readonly string[] }): Promise<void>;
  holds(order: WorkspaceOrder): Promise<readonly { readonly name: string; readonly object: GitObjectId }[]>;
  /** Removes what nothing holds and is older than the bound, and packs the rest. */
  tidy(order: WorkspaceOrder & { readonly olderThanMs: number }): Promise<{ readonly bytes: number }>;
}
