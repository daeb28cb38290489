/** A file as the API shows it, from what a worker says of it; and etags. */
import { isUtf8 } from 'node:buffer';
import type { FileEntry } from '../../protocol/index.ts';
import type { FileStat } from './wire.ts';

export const relativeTo = '/workspace';

/** Absolute, without dots and slashes that mean nothing, but not resolved: `..` behind a symlink is the kernel's to understand. */
export function absolutePath(path: string): string {
  return shortened(path.startsWith('/') ? path : `${relativeTo}/${path}`);
}

export function entryOf(path: string, stat: FileStat, linkTarget: Buffer): FileEntry {
  return entryOfBytes(Buffer.from(path), stat, linkTarget);
}

export function entryBelow(directory: string, relative: Buffer, stat: FileStat, linkTarget: Buffer): FileEntry {
  return entryOfBytes(bytesBelow(directory, relative), stat, linkTarget);
}

export function bytesBelow(directory: string, relative: Buffer): Buffer {
  return Buffer.concat([Buffer.from(directory === '/' ? '/' : `${directory}/`), relative]);
}

function entryOfBytes(path: Buffer, stat: FileStat, linkTarget: Buffer): FileEntry {
  return {
    path: path.toString('utf8'),
    pathBase64: isUtf8(path) ? null : path.toString('base64'),
    type: stat.type,
    sizeBytes: stat.size,
    mode: stat.mode,
    uid: stat.uid,
    gid: stat.gid,
    modifiedAtMs: clampMs(stat.modifiedNs),
    etag: etagOf(stat),
    linkTarget: stat.type === 'symlink' ? linkTarget.toString('utf8') : null,
  };
}

function shortened(path: string): string {
  const parts = path.split('/').filter((part) => part !== '' && part !== '.');
  return `/${parts.join('/')}`;
}

export function etagOf(stat: Pick<FileStat, 'inode' | 'changedNs'>): string {
  return `${stat.inode.toString(36)}.${stat.changedNs.toString(36)}`;
}

/** `undefined`: not one of ours, so no file has it. */
export function parseEtag(etag: string): { readonly inode: bigint; readonly changedNs: bigint } | undefined {
  const found = /^([0-9a-z]{1,13})\.(-?[0-9a-z]{1,13})$/.exec(etag);
  if (found === null) return undefined;
  const inode = fromBase36(found[1]!);
  const changedNs = fromBase36(found[2]!);
  const isInRange = inode < 2n ** 64n && changedNs < 2n ** 63n && changedNs >= -(2n ** 63n);
  return isInRange ? { inode, changedNs } : undefined;
}

function fromBase36(text: string): bigint {
  const isNegative = text.startsWith('-');
  let value = 0n;
  for (const digit of isNegative ? text.slice(1) : text) value = value * 36n + BigInt(Number.parseInt(digit, 36));
  return isNegative ? -value : value;
}

/** A date that JavaScript has; a file may claim any. */
function clampMs(ns: bigint): number {
  const limit = 8_640_000_000_000_000;
  return Math.max(-limit, Math.min(limit, Number(ns / 1_000_000n)));
}
