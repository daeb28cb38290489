/** The steps of the tree, applied to a disk that forgives nothing, make what a flat and slow model of overlaid layers says. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isPlatformError } from '../../protocol/index.ts';
import { ImageTree, type NodeKind, type TreeStep } from './image-tree.ts';

type Action =
  | { readonly do: 'place'; readonly path: string; readonly kind: NodeKind }
  | { readonly do: 'link'; readonly path: string; readonly target: string }
  | { readonly do: 'hide' | 'opaque'; readonly path: string };

const mtime = { seconds: 1, nanoseconds: 0 };
const parentOf = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf('/')));
const isBelow = (path: string, top: string) => (top === '' ? path !== '' : path.startsWith(`${top}/`));

/** What a file system would do: everything must be as the step says. */
class StrictDisk {
  readonly entries = new Map<string, NodeKind>();

  take(steps: readonly TreeStep[]): void {
    for (const step of steps) {
      if (step.kind === 'imply') this.make(step.path, 'directory');
      else {
        expect(this.entries.get(step.path) === 'directory').toBe(step.isDirectory);
        expect([...this.entries.keys()].some((path) => isBelow(path, step.path))).toBe(false);
        expect(this.entries.delete(step.path)).toBe(true);
      }
    }
  }

  make(path: string, kind: NodeKind): void {
    expect(this.entries.has(path)).toBe(false);
    if (parentOf(path) !== '') expect(this.entries.get(parentOf(path))).toBe('directory');
    this.entries.set(path, kind);
  }
}

/** Every path by itself, with the layer that last made or described it. */
class FlatModel {
  readonly entries = new Map<string, { kind: NodeKind; layer: number }>();

  place(path: string, kind: NodeKind, layer: number): void {
    for (let parent = parentOf(path); parent !== ''; parent = parentOf(parent)) {
      this.entries.set(parent, { kind: 'directory', layer });
    }
    if (kind !== 'directory' || this.entries.get(path)?.kind !== 'directory') this.#drop((one) => isBelow(one, path));
    this.entries.set(path, { kind, layer });
  }

  /** `top` itself goes too unless `isOpaque`; what this layer has made stays, with the directories on its way. */
  hide(top: string, layer: number, isOpaque: boolean): void {
    const isKept = (path: string) =>
      [...this.entries].some(([one, entry]) => entry.layer === layer && (one === path || isBelow(one, path)));
    this.#drop((path) => (isBelow(path, top) || (path === top && !isOpaque)) && !isKept(path));
  }

  #drop(isDropped: (path: string) => boolean): void {
    for (const path of [...this.entries.keys()].filter(isDropped)) this.entries.delete(path);
  }
}

const name = fc.constantFrom('a', 'b', 'c');
const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('/'));
const action: fc.Arbitrary<Action> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('place' as const),
      path,
      kind: fc.constantFrom<NodeKind>('directory', 'directory', 'file', 'link'),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('link' as const), path, target: path }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('hide' as const, 'opaque' as const), path }) },
);

function apply(tree: ImageTree, disk: StrictDisk, one: Action): void {
  if (one.do === 'place') {
    const { steps, isKnown } = tree.place(one.path, { kind: one.kind, mtime });
    disk.take(steps);
    if (isKnown) expect(disk.entries.get(one.path)).toBe('directory');
    else disk.make(one.path, one.kind);
  } else if (one.do === 'link') {
    disk.take(tree.placeHardLink(one.path, { target: one.target, mtime }));
    disk.make(one.path, disk.entries.get(one.target)!);
  } else disk.take(one.do === 'hide' ? tree.hide(one.path) : tree.hideChildren(one.path));
}

test('random layers become what overlaying them one by one would show', () => {
  let refused = 0;
  let applied = 0;
  fc.assert(
    fc.property(fc.array(fc.array(action, { maxLength: 8 }), { maxLength: 4 }), (layers) => {
      const tree = new ImageTree();
      const disk = new StrictDisk();
      const model = new FlatModel();
      for (const [index, actions] of layers.entries()) {
        tree.beginLayer();
        for (const one of actions) {
          try {
            apply(tree, disk, one);
          } catch (error) {
            if (!isPlatformError(error, 'image_refused')) throw error;
            refused += 1;
            return;
          }
          applied += 1;
          const layer = index + 1;
          if (one.do === 'place') model.place(one.path, one.kind, layer);
          else if (one.do === 'link') model.place(one.path, disk.entries.get(one.path)!, layer);
          else model.hide(one.path, layer, one.do === 'opaque');
          const kinds = new Map([...model.entries].map(([at, { kind }]) => [at, kind]));
          expect(new Map([...disk.entries].sort())).toEqual(new Map([...kinds].sort()));
        }
      }
      const directories = [...disk.entries].filter(([, kind]) => kind === 'directory').map(([at]) => at);
      expect([...tree.directories()].map((one) => one.path).sort()).toEqual(directories.sort());
    }),
    { numRuns: 3_000 },
  );
  expect(applied).toBeGreaterThan(5_000);
  expect(refused).toBeGreaterThan(100);
});
