/** What a file system does for a store of layers: the part that differs between one that has snapshots and one that has not. */
import type { SubvolumeQuota } from '../isolation/index.ts';
import type { DriverKind, ForkKind, LiveFreeze, Usage } from './layer-store.ts';

/** The trees of a layer, and what overlayfs needs beside each when it is written to. */
export const treeNames = ['upper', 'usr-upper'] as const;
export const workNames = ['work', 'usr-work'] as const;

export interface LayerDriver {
  readonly kind: DriverKind;
  readonly liveFreeze: LiveFreeze;
  readonly hasQuotas: boolean;
  /** Content of a writable layer that nobody uses becomes a layer by rename. Otherwise freezing never moves it. */
  readonly movesContent: boolean;

  /**
   * What a fork takes from a layer: `stack` leaves it under the new writable layer, `content` gives the new one all that the layer has,
   * at no cost, so that the fork does not stand on it.
   */
  readonly forksBy: ForkKind;

  /**
   * `freeze`, and `makeWritable` of a layer, are one step each, after which everything that was changed before is on disk too, and no later
   * change gets there before an earlier one. So a place has its name from the beginning and is whole when its files are there, and a
   * removal needs no sync. The space that it frees comes back later anyway, so nobody waits for the end of it.
   */
  readonly isTransactional: boolean;

  /** Makes the files of a writable layer at `path`, for a fork of the layer whose files are at `from`. */
  makeWritable(path: string, from: string | undefined): Promise<void>;
  /** Where the file system charges whoever wrote something, and not whoever refers to it. `usageOf` and `setLimit` are then not for use. */
  readonly charges: WriterCharges | undefined;

  /**
   * Makes what is in the writable `from` an immutable copy at `to`, of one instant if nobody writes meanwhile. On disk when it returns.
   * Answers what `from` is charged with at that instant; 0 where nothing is charged.
   */
  freeze(options: { readonly from: string; readonly to: string }): Promise<number>;
  /** Makes an immutable place at `path` of what `fill` puts there. On disk when it returns. */
  build(path: string, fill: (directory: string) => Promise<void>): Promise<void>;
  /** Removes a directory of the store with whatever it holds; one that is not there is removed. */
  remove(path: string): Promise<void>;
  usageOf(path: string, options: { readonly isFixed: boolean }): Promise<Usage>;
  setLimit(path: string, limitBytes: number): Promise<void>;
  maintain(): Promise<void>;
  /** `isUnused`: nothing in it is written to by anybody. */
  close(options: { readonly isUnused: boolean }): Promise<void>;
}

export interface WriterCharges {
  charged(path: string, options: { readonly isFixed: boolean }): Promise<SubvolumeQuota>;
  limit(path: string, chargedBytes: number): Promise<void>;
  /** Of a place that nobody changes: what it refers to, in a time that grows with its files. */
  referred(path: string): Promise<number>;
  /** Of a place that may be in use: what it still has of what it began with. `scratch` is a path where nothing is. */
  older(path: string, scratch: string): Promise<number>;
}
