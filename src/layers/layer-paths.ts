/**
 * Where a store keeps what.
 *
 *   layers/<id>/       a layer: manifest.json, data/ with a tree for `/` and one for `/usr`
 *   writable/<id>/     a writable layer: writable.json, data/ with the same and what overlayfs needs
 *   making/            what is not complete; removed when the store is opened. Where snapshots are, what has no data/ is not complete either
 *   trash/             what is being removed; emptied when the store is opened
 *   quarantine/        what was found damaged
 */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { LayerId, WritableId } from '../protocol/index.ts';

export class LayerPaths {
  readonly layers: string;
  readonly writables: string;
  readonly making: string;
  readonly trash: string;
  readonly quarantine: string;

  constructor(root: string) {
    this.layers = join(root, 'layers');
    this.writables = join(root, 'writable');
    this.making = join(root, 'making');
    this.trash = join(root, 'trash');
    this.quarantine = join(root, 'quarantine');
  }

  async make(): Promise<void> {
    for (const path of [this.layers, this.writables, this.making, this.trash, this.quarantine]) {
      await mkdir(path, { recursive: true, mode: 0o700 });
    }
  }

  layer(id: LayerId): string {
    return join(this.layers, id);
  }

  writable(id: WritableId): string {
    return join(this.writables, id);
  }

  unfinished(id: LayerId | WritableId): string {
    return join(this.making, id);
  }

  removed(id: LayerId | WritableId): string {
    return join(this.trash, id);
  }
}

/** The files of a layer or a writable layer, in its directory. */
export function dataOf(directory: string): string {
  return join(directory, 'data');
}
