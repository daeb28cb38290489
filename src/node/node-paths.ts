/**
 * Where a node keeps what.
 *
 *   node.json          the node's id
 *   sandboxes/<id>/    one sandbox: record.json and settings, shared/ (seen inside as /run/atoll), journals, init.sock
 *   making/<id>/       a sandbox that is not complete; removed when the node starts
 *   trash/             deleted sandboxes whose files are being removed; emptied when the node starts
 *   spare/             empty directories for the next sandboxes; removed when the node starts
 *   layers/            templates
 *   storage/           writable layers of sandboxes, and layers that checkpoints are made of
 *   checkpoints/       a record of each checkpoint
 *   workspaces/        the workspaces whose home is this node: HomeDirectories
 */
import { join } from 'node:path';
import type { SandboxId } from '../protocol/index.ts';

export class NodePaths {
  readonly root: string;
  readonly layers: string;
  /** Other nodes may be building templates in the same directory. */
  readonly sharesLayers: boolean;

  constructor(options: { readonly dataDirectory: string; readonly layersDirectory?: string | undefined }) {
    this.root = options.dataDirectory;
    this.layers = options.layersDirectory ?? join(this.root, 'layers');
    this.sharesLayers = options.layersDirectory !== undefined;
  }

  get nodeFile(): string {
    return join(this.root, 'node.json');
  }

  get sandboxes(): string {
    return join(this.root, 'sandboxes');
  }

  get making(): string {
    return join(this.root, 'making');
  }

  get trash(): string {
    return join(this.root, 'trash');
  }

  get spare(): string {
    return join(this.root, 'spare');
  }

  get storage(): string {
    return join(this.root, 'storage');
  }

  get checkpoints(): string {
    return join(this.root, 'checkpoints');
  }

  get workspaces(): string {
    return join(this.root, 'workspaces');
  }

  sandbox(id: SandboxId): string {
    return join(this.sandboxes, id);
  }

  unfinished(id: SandboxId): string {
    return join(this.making, id);
  }
}
