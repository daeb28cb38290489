/**
 * Names in the tar of a layer: where they lead in the tree, and what a whiteout among them hides.
 *
 * Always true: a path that comes out of here is relative, has no empty, `.` or `..` name in it, and is within the limits. The top is ''.
 */
import { type ImageLimits, refuseBeyond, refuseImage } from './image-limits.ts';

const whiteoutPrefix = '.wh.';
/** Of the tool that invented whiteouts; whatever else begins so is its own book-keeping. */
const metadataPrefix = '.wh..wh.';
const opaqueName = '.wh..wh..opq';
const nameBytesMax = 255;

export type LayerName =
  | { readonly kind: 'entry'; readonly path: string }
  /** The lower layers' entry of this path is gone. */
  | { readonly kind: 'whiteout'; readonly path: string }
  /** Everything of lower layers in this directory is gone. */
  | { readonly kind: 'opaque'; readonly path: string }
  | { readonly kind: 'ignored' };

export function parseLayerName(name: string, limits: ImageLimits): LayerName {
  const parts = partsOf(name, limits);
  const path = parts.join('/');
  const last = parts.at(-1);
  if (parts.some((part) => part.startsWith(metadataPrefix) && part !== opaqueName)) return { kind: 'ignored' };
  if (parts.slice(0, -1).some((part) => part.startsWith(whiteoutPrefix))) refuseName(name, 'leads through a whiteout');
  if (last === undefined || !last.startsWith(whiteoutPrefix)) return { kind: 'entry', path };
  const directory = parts.slice(0, -1);
  if (last === opaqueName) return { kind: 'opaque', path: directory.join('/') };
  const hidden = last.slice(whiteoutPrefix.length);
  if (hidden === '' || hidden === '.' || hidden === '..') refuseName(name, 'hides no entry');
  return { kind: 'whiteout', path: [...directory, hidden].join('/') };
}

/** The target of a hard link, which names an entry from the top as entries do. */
export function parseLinkTarget(name: string, limits: ImageLimits): string {
  const path = partsOf(name, limits).join('/');
  if (path === '') refuseName(name, 'is the target of a hard link, and a directory');
  return path;
}

/** How a byte string is shown to people. */
export function readable(name: string): string {
  return Buffer.from(name.slice(0, 512), 'latin1').toString('utf8');
}

export function refuseName(name: string, why: string): never {
  refuseImage(`The entry "${readable(name)}" of a layer ${why}.`, { entry: readable(name) });
}

function partsOf(name: string, limits: ImageLimits): string[] {
  if (name === '') refuseName(name, 'has no name');
  if (name.startsWith('/')) refuseName(name, 'has an absolute name');
  if (name.length > limits.pathBytes) refuseBeyond('pathBytes', limits);
  const parts = name.split('/').filter((part) => part !== '' && part !== '.');
  if (parts.includes('..')) refuseName(name, 'leads upward');
  if (parts.some((part) => part.length > nameBytesMax))
    refuseName(name, `has a name of more than ${nameBytesMax} bytes`);
  if (parts.length > limits.depth) refuseBeyond('depth', limits);
  return parts;
}
