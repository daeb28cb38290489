/** The files of a checkout in a sandbox, as they are looked at and read: only inside the sandbox is a path of it resolved. */
import type { LifeOrder } from '../../protocol/index.ts';

export interface CheckoutEntry {
  /** Below the checkout's own path; bytes as latin1. */
  readonly path: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  readonly mode: number;
  readonly sizeBytes: number;
  readonly modifiedNs: bigint;
  readonly changedNs: bigint;
  readonly inode: bigint;
  /** Of a symlink; bytes as latin1. */
  readonly linkTarget: string | null;
}

export interface CheckoutFiles {
  /** Everything below, each directory before what is in it. Refuses more than `limit`. */
  list(limit: number, signal?: AbortSignal): Promise<readonly CheckoutEntry[]>;
  /** A regular file, opened: what it is then, and its bytes. */
  read(
    path: string,
    signal?: AbortSignal,
  ): Promise<{ readonly entry: Omit<CheckoutEntry, 'path'>; readonly bytes: AsyncIterable<Uint8Array> }>;
}

/** Refuses a life that is not the sandbox's, and a sandbox that is not on this node. */
export type FindCheckout = (life: LifeOrder, path: string) => CheckoutFiles;
