/**
 * One layer onto the tree: what each entry of its tar means, and what of it is written.
 *
 * Always true: nothing is written that `ImageTree` has not admitted. Devices, sparse files and what nobody knows are refused; devices below
 * dev/ are left out, for a sandbox has a /dev of its own there. Of the attributes `user.*` stay on files and directories and
 * `security.capability` on files; the rest is left out, and among it everything that speaks to an overlay.
 */
import { ByteReader } from './byte-reader.ts';
import { type ImageLimits, refuseBeyond, refuseImage } from './image-limits.ts';
import type { ImageTree, NodeKind, TreeStep } from './image-tree.ts';
import { parseLayerName, parseLinkTarget, readable, refuseName } from './layer-names.ts';
import { tarTypes } from './tar-header.ts';
import { readTar, type TarEntry } from './tar-reader.ts';
import type { TreeEntry, TreeWriter } from './tree-writer.ts';

/** What is left of the limits, and what was found; shared by all layers of an image. */
export interface ImageTally {
  readonly limits: ImageLimits;
  /** Bytes of all tars so far. */
  bytes: number;
  entries: number;
  skippedDevices: number;
  skippedAttributes: number;
}

/** What describes the top in the end; it stays closed to others until then. */
export type TopEntry = Pick<TreeEntry, 'mode' | 'uid' | 'gid' | 'mtime' | 'attributes'>;

export interface LayerTarget {
  readonly tree: ImageTree;
  readonly writer: TreeWriter;
  readonly tally: ImageTally;
  readonly setTop: (top: TopEntry) => void;
}

/** The ids that a sandbox has. */
const ids = 65_536;
const linkTargetBytesMax = 4_095;
const attributeBytesMax = 65_536;
const implied = { mode: 0o755, uid: 0, gid: 0 };
const nodeKinds: Readonly<Record<string, NodeKind>> = {
  [tarTypes.file]: 'file',
  [tarTypes.contiguous]: 'file',
  [tarTypes.directory]: 'directory',
  [tarTypes.link]: 'link',
  [tarTypes.fifo]: 'fifo',
};

/** Reads the tar to its end, also what follows its last entry. */
export async function applyLayer(tar: AsyncIterable<Buffer>, target: LayerTarget): Promise<void> {
  const reader = new ByteReader(counted(tar, target.tally));
  target.tree.beginLayer();
  try {
    for await (const entry of readTar(reader)) await applyEntry(entry, target);
    for await (const part of reader.rest()) void part;
  } finally {
    await reader.close();
  }
}

async function* counted(tar: AsyncIterable<Buffer>, tally: ImageTally): AsyncGenerator<Buffer, void> {
  for await (const chunk of tar) {
    tally.bytes += chunk.byteLength;
    if (tally.bytes > tally.limits.totalBytes) refuseBeyond('totalBytes', tally.limits);
    yield chunk;
  }
}

async function applyEntry(entry: TarEntry, target: LayerTarget): Promise<void> {
  const { tree, tally } = target;
  countEntry(tally);
  // Before the first byte: what is announced and does not fit need not be written to find out.
  if (tally.bytes + entry.size > tally.limits.totalBytes + blocksAtHand) refuseBeyond('totalBytes', tally.limits);
  const name = parseLayerName(entry.name, tally.limits);
  if (name.kind === 'ignored') return;
  if (name.kind === 'whiteout') return takeSteps(tree.hide(name.path), entry, target);
  if (name.kind === 'opaque') return takeSteps(tree.hideChildren(name.path), entry, target);
  await placeEntry(entry, name.path, target);
}

/** Directories that are only implied count too: each of a million entries could imply a hundred of them. */
function countEntry(tally: ImageTally): void {
  tally.entries += 1;
  if (tally.entries > tally.limits.entries) refuseBeyond('entries', tally.limits);
}

/** Part of an entry may have been counted already: a chunk of the stream is never greater than this. */
const blocksAtHand = 1024 * 1024;

async function placeEntry(entry: TarEntry, path: string, target: LayerTarget): Promise<void> {
  const { tree, writer, tally } = target;
  if (entry.type === tarTypes.character || entry.type === tarTypes.block) return skipDevice(path, target);
  if (entry.type === tarTypes.sparse) refuseName(path, 'is a sparse file, which is not supported');
  if (entry.uid >= ids || entry.gid >= ids) refuseName(path, `has an owner beyond the ${ids} ids of a sandbox`);
  const described = { mode: entry.mode, uid: entry.uid, gid: entry.gid, mtime: entry.mtime };
  if (entry.type === tarTypes.hardLink) {
    const linked = parseLinkTarget(entry.target, tally.limits);
    await takeSteps(tree.placeHardLink(path, { target: linked, mtime: entry.mtime }), entry, target);
    await writer.entry({ kind: 'hardLink', path, target: linked, ...described });
    return;
  }
  const kind = kindOf(entry, path);
  const { steps, isKnown } = tree.place(path, { kind, mtime: entry.mtime });
  await takeSteps(steps, entry, target);
  const attributes = keptAttributes(entry, { kind, tally });
  if (path === '') return target.setTop({ ...described, attributes });
  await writer.entry({
    ...described,
    kind: isKnown ? 'knownDirectory' : kind,
    path,
    attributes,
    ...(kind === 'link' ? { target: entry.target } : {}),
    ...(kind === 'file' ? { size: entry.size } : {}),
  });
  if (kind === 'file') for await (const chunk of entry.content()) await writer.data(chunk);
}

function kindOf(entry: TarEntry, path: string): NodeKind {
  const kind = nodeKinds[entry.type];
  if (kind === undefined) refuseName(path, `is of the type "${entry.type}", which is not supported`);
  if (kind === 'link' && (entry.target === '' || entry.target.length > linkTargetBytesMax)) {
    refuseName(path, 'is a symbolic link without a usable target');
  }
  // Tars older than the type for directories say it by the name.
  return kind === 'file' && entry.name.endsWith('/') ? 'directory' : kind;
}

function skipDevice(path: string, { tally }: LayerTarget): void {
  if (!path.startsWith('dev/')) refuseName(path, 'is a device');
  tally.skippedDevices += 1;
}

async function takeSteps(steps: readonly TreeStep[], entry: TarEntry, { writer, tally }: LayerTarget): Promise<void> {
  for (const step of steps) {
    if (step.kind === 'remove') await writer.remove(step.path, { isDirectory: step.isDirectory });
    else {
      countEntry(tally);
      await writer.entry({ kind: 'directory', path: step.path, ...implied, mtime: entry.mtime });
    }
  }
}

function keptAttributes(
  entry: TarEntry,
  options: { readonly kind: NodeKind; readonly tally: ImageTally },
): ReadonlyMap<string, Buffer> {
  const kept = new Map<string, Buffer>();
  for (const [name, value] of entry.attributes) {
    if (!isKept(name, options.kind)) options.tally.skippedAttributes += 1;
    else if (value.byteLength > attributeBytesMax || name.length > 255 || name.includes('\0')) {
      refuseName(entry.name, `has an attribute "${readable(name)}" that is too long`);
    } else if (name === 'security.capability' && !isPlainCapability(value)) {
      refuseImage(`The capabilities of "${readable(entry.name)}" are not of the kind that names no user.`);
    } else kept.set(name, value);
  }
  return kept;
}

function isKept(name: string, kind: NodeKind): boolean {
  if (name === 'security.capability') return kind === 'file';
  return name.startsWith('user.') && !name.startsWith('user.overlay.') && (kind === 'file' || kind === 'directory');
}

/** The second version: it counts for whoever is root where the file is seen. The third names an id of the machine. */
function isPlainCapability(value: Buffer): boolean {
  return value.byteLength === 20 && value.readUInt32LE(0) >>> 24 === 2;
}
