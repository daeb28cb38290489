/**
 * What a root file system is kept in: immutable layers, and writable ones on top of them.
 *
 * A layer is a set of trees (one for `/`, one for `/usr`) that is taken as one. It stands on its `parents`, uppermost first, and at the
 * bottom of all on a template, which is not kept here and goes by the name `base`.
 *
 *   template   <-   layer   <-   layer   <-   writable
 *
 * Where a fork costs nothing (`forksBy: 'content'`), a writable layer has all that its layer had and stands on the template alone, so that
 * stacks never grow.
 *
 * What every implementation promises:
 *  - A layer is visible only when it is whole and on disk, and never changes. A writable layer is changed only by its one user.
 *  - Whatever ends the process, what is found afterwards is before or after an operation. `recovery` at opening removes the rest.
 *  - What something else stands on is not removed.
 *  - One process uses a store at a time; the caller holds a lock on the data directory.
 */
import type { LayerId, WritableId } from '../protocol/index.ts';
import type { StorageKind } from './probe-storage.ts';

/** How a layer of a running sandbox is frozen: at once, or in a time that grows with its files, or with its bytes. */
export type LiveFreeze = 'snapshot' | 'reflink' | 'copy';

/** Whether a fork stands on its layer, or has its content. */
export type ForkKind = 'stack' | 'content';

export type DriverKind = 'btrfs' | 'directory';

export interface Layer {
  readonly id: LayerId;
  /** The template below everything. */
  readonly base: string;
  /** Uppermost first. */
  readonly parents: readonly LayerId[];
  readonly createdAtMs: number;
  /** The stack that this layer replaces, when it was made by `flatten`. */
  readonly flattens: readonly LayerId[] | undefined;
}

export interface Writable {
  readonly id: WritableId;
  readonly base: string;
  /** Changes when a freeze by rename puts a new layer under it: read it again for each life. */
  readonly parents: readonly LayerId[];
  /** Holds `upper`, `work`, `usr-upper` and `usr-work`, on one file system. */
  readonly directory: string;
}

/** Directories for an overlay, uppermost first; a template's own come below them. */
export interface Trees {
  readonly layers: readonly string[];
  readonly usrLayers: readonly string[];
}

export interface Usage {
  readonly bytes: number;
  /** What only this one holds; undefined where blocks are not counted by owner. */
  readonly exclusiveBytes: number | undefined;
  readonly limitBytes: number | undefined;
}

export interface LayerStore {
  readonly kind: DriverKind;
  readonly storageKind: StorageKind;
  /** Its directory, on the file system that everything in it takes its space from. */
  readonly root: string;
  readonly liveFreeze: LiveFreeze;
  readonly hasQuotas: boolean;
  readonly forksBy: ForkKind;

  /** A writable layer that shows what the layer and its parents show; without one, nothing beyond the template. */
  openWritable(options: {
    readonly base: string;
    readonly from?: LayerId | undefined;
    readonly limitBytes?: number | undefined;
  }): Promise<Writable>;

  findWritable(id: WritableId): Writable | undefined;
  listWritables(): readonly Writable[];

  /** What lies under a writable layer, each layer verified. */
  treesUnder(id: WritableId): Promise<Trees>;

  /**
   * Makes a layer of what the writable one holds now. While the sandbox runs, the caller keeps its processes frozen for that time, so that
   * the layer is of one instant. The writable layer stays in use under its id; if nobody uses it (`isInUse: false`) its content may
   * move below it.
   */
  freeze(id: WritableId, options: { readonly isInUse: boolean }): Promise<Layer>;

  discardWritable(id: WritableId): Promise<void>;

  findLayer(id: LayerId): Layer | undefined;
  listLayers(): readonly Layer[];
  removeLayer(id: LayerId): Promise<void>;

  /** One layer without parents that shows what this one and its parents show, which stay. One without parents is the answer itself. */
  flatten(id: LayerId): Promise<Layer>;

  /** Puts a writable layer that nobody uses on the layer that its parents were flattened to. */
  restack(id: WritableId, flattened: LayerId): Promise<Writable>;

  usageOf(id: WritableId | LayerId): Promise<Usage>;
  setLimit(id: WritableId, limitBytes: number): Promise<void>;

  /**
   * Removes layers that neither the caller nor anything here refers to. Young ones stay: whoever made one may not have written it down yet.
   * Returns what was removed.
   */
  collect(options: { readonly referenced: Iterable<LayerId>; readonly minAgeMs?: number }): Promise<readonly LayerId[]>;

  /** Makes room before it is needed. To be called every few seconds; the operations above do it too. */
  maintain(): Promise<void>;

  /** Names of what was found damaged and put aside. */
  listQuarantine(): Promise<readonly string[]>;

  /** Returns when sizes that were estimated are counted. */
  counted(): Promise<void>;

  /** Returns when what was removed before is off the disk, as far as that is done here and not by the file system itself. */
  emptied(): Promise<void>;

  /** The storage is unmounted unless a writable layer is left, which a sandbox may be running on. */
  close(): Promise<void>;
}
