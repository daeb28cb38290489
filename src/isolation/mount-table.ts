/** Reads the kernel's list of mounts. */
import { readFile } from 'node:fs/promises';

export interface Mount {
  readonly directory: string;
  readonly type: string;
  readonly options: ReadonlySet<string>;
}

export async function readMounts(): Promise<Mount[]> {
  return parseMounts(await readFile('/proc/self/mounts', 'utf8'));
}

export function parseMounts(text: string): Mount[] {
  const mounts: Mount[] = [];
  for (const line of text.split('\n')) {
    const [, directory, type, options] = line.split(' ');
    if (directory === undefined || type === undefined || options === undefined) continue;
    mounts.push({ directory: unescapeOctal(directory), type, options: new Set(options.split(',')) });
  }
  return mounts;
}

/** The mount a path lies on: the longest directory that holds it, and of several on one directory the last. */
export function findMountOf(mounts: readonly Mount[], path: string): Mount | undefined {
  let found: Mount | undefined;
  for (const mount of mounts) {
    const inside = mount.directory === '/' || path === mount.directory || path.startsWith(`${mount.directory}/`);
    if (inside && mount.directory.length >= (found?.directory.length ?? 0)) found = mount;
  }
  return found;
}

/** The kernel writes blanks and backslashes in a path as three octal digits. */
function unescapeOctal(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
