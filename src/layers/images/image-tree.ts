/**
 * What is in the tree so far, by layer: decides what each entry of a layer means for it, as an overlay of the layers would show it, and
 * what has to be removed to make room. It holds names and kinds only; nothing on disk is looked at.
 *
 * Invariants:
 *  - Only directories have something below them: an entry whose way leads through a link or file is refused, whichever layer made that.
 *  - `touched` is the last layer that made a node, described it or put something below it. A whiteout removes what no entry of its own
 *    layer has touched, wherever in the tar it stands.
 *  - Applying the steps in order to a directory that was empty at first makes exactly this tree.
 */
import { assert } from '../../base/index.ts';
import { refuseName } from './layer-names.ts';
import type { PaxTime } from './pax-records.ts';

export type NodeKind = 'directory' | 'file' | 'link' | 'fifo';

export type TreeStep =
  | { readonly kind: 'remove'; readonly path: string; readonly isDirectory: boolean }
  /** A directory that no layer describes but something is in. */
  | { readonly kind: 'imply'; readonly path: string };

interface TreeNode {
  kind: NodeKind;
  touched: number;
  mtime: PaxTime;
  readonly children: Map<string, TreeNode> | undefined;
}

const epoch: PaxTime = { seconds: 0, nanoseconds: 0 };

export class ImageTree {
  readonly #top: TreeNode = { kind: 'directory', touched: 0, mtime: epoch, children: new Map() };
  #layer = 0;

  beginLayer(): void {
    this.#layer += 1;
  }

  /** An entry of the present layer. `isKnown`: the directory is there and only described anew. */
  place(
    path: string,
    entry: { readonly kind: NodeKind; readonly mtime: PaxTime },
  ): { steps: TreeStep[]; isKnown: boolean } {
    const steps: TreeStep[] = [];
    const { kind, mtime } = entry;
    if (path === '') {
      if (kind !== 'directory') refuseName('.', 'is the top and no directory');
      this.#top.mtime = mtime;
      return { steps, isKnown: true };
    }
    const { parent, name } = this.#wayTo(path, { steps, mtime });
    const there = parent.children!.get(name);
    if (there?.kind === 'directory' && kind === 'directory') {
      there.touched = this.#layer;
      there.mtime = mtime;
      return { steps, isKnown: true };
    }
    if (there !== undefined) removeAll(there, path, steps);
    const children = kind === 'directory' ? new Map<string, TreeNode>() : undefined;
    parent.children!.set(name, { kind, touched: this.#layer, mtime, children });
    return { steps, isKnown: false };
  }

  /** A second name for what is at `target`, which must be there and no directory. */
  placeHardLink(path: string, options: { readonly target: string; readonly mtime: PaxTime }): TreeStep[] {
    const { target, mtime } = options;
    const found = this.#find(target);
    if (found === undefined || found.kind === 'directory' || path === target || target.startsWith(`${path}/`)) {
      refuseName(path, 'is a hard link to what is no file of the image');
    }
    return this.place(path, { kind: found.kind, mtime }).steps;
  }

  /** Removes what lower layers have at this path. */
  hide(path: string): TreeStep[] {
    const steps: TreeStep[] = [];
    const slash = path.lastIndexOf('/');
    const siblings = this.#childrenOf(slash === -1 ? '' : path.slice(0, slash));
    const name = path.slice(slash + 1);
    const node = siblings.get(name);
    if (node !== undefined && this.#removeLower(node, path, steps)) siblings.delete(name);
    return steps;
  }

  /** Removes what lower layers have in this directory. */
  hideChildren(path: string): TreeStep[] {
    const steps: TreeStep[] = [];
    const children = this.#childrenOf(path);
    for (const [name, child] of children) {
      if (this.#removeLower(child, path === '' ? name : `${path}/${name}`, steps)) children.delete(name);
    }
    return steps;
  }

  /** Every directory below the top with the time it is to have in the end. */
  *directories(): Generator<{ readonly path: string; readonly mtime: PaxTime }, void> {
    const waiting: [path: string, node: TreeNode][] = [['', this.#top]];
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      const [path, node] = next;
      if (path !== '') yield { path, mtime: node.mtime };
      for (const [name, child] of node.children!) {
        if (child.kind === 'directory') waiting.push([path === '' ? name : `${path}/${name}`, child]);
      }
    }
  }

  /** The directory that the last name of a path is in; makes what is missing and marks all of it as touched. */
  #wayTo(path: string, made: { steps: TreeStep[]; mtime: PaxTime }): { parent: TreeNode; name: string } {
    const names = path.split('/');
    const name = names.pop()!;
    let parent = this.#top;
    for (const [index, step] of names.entries()) {
      let child = parent.children!.get(step);
      if (child === undefined) {
        child = { kind: 'directory', touched: this.#layer, mtime: made.mtime, children: new Map() };
        parent.children!.set(step, child);
        made.steps.push({ kind: 'imply', path: names.slice(0, index + 1).join('/') });
      }
      if (child.kind !== 'directory') refuseWay(path, child.kind);
      child.touched = this.#layer;
      parent = child;
    }
    return { parent, name };
  }

  /** What is in a directory; nothing when it is not there. */
  #childrenOf(path: string): Map<string, TreeNode> {
    const node = this.#find(path);
    return node === undefined || this.#isDeadEnd(node, path) ? new Map() : node.children!;
  }

  #find(path: string): TreeNode | undefined {
    let node: TreeNode | undefined = this.#top;
    for (const name of path === '' ? [] : path.split('/')) {
      if (this.#isDeadEnd(node, path)) return undefined;
      node = node.children!.get(name);
      if (node === undefined) return undefined;
    }
    return node;
  }

  /**
   * Nothing is below what is no directory. A layer that puts a file or link in the place of a directory may hide what was in the directory as
   * well; a way through what an earlier layer put there is refused.
   */
  #isDeadEnd(node: TreeNode, path: string): boolean {
    if (node.kind === 'directory') return false;
    if (node.touched < this.#layer) refuseWay(path, node.kind);
    return true;
  }

  /** Whether nothing of the node is left; a directory stays when the present layer touched it. */
  #removeLower(node: TreeNode, path: string, steps: TreeStep[]): boolean {
    if (node.touched < this.#layer) {
      removeAll(node, path, steps);
      return true;
    }
    for (const [name, child] of node.children ?? []) {
      if (this.#removeLower(child, `${path}/${name}`, steps)) node.children!.delete(name);
    }
    return false;
  }
}

/** What is in a directory goes before it. */
function removeAll(node: TreeNode, path: string, steps: TreeStep[]): void {
  for (const [name, child] of node.children ?? []) removeAll(child, `${path}/${name}`, steps);
  assert(path !== '', 'The top is never removed.');
  steps.push({ kind: 'remove', path, isDirectory: node.kind === 'directory' });
}

function refuseWay(path: string, kind: NodeKind): never {
  refuseName(path, kind === 'link' ? 'leads through a symbolic link' : 'leads through what is no directory');
}
