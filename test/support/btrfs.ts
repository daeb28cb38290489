/** Whether a test can have a btrfs of its own here: it really makes one, in a file, and mounts it. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Requirement } from './requires.ts';

const imageBytes = 160 * 1024 ** 2;

let answer: { readonly missing: string | undefined } | undefined;

/** For `testWith` and `describeWith`. Tried once. */
export const btrfs: Requirement = {
  name: 'btrfs',
  missing: () => {
    answer ??= { missing: look() };
    return answer.missing;
  },
};

function look(): string | undefined {
  const directory = mkdtempSync(join(tmpdir(), 'atoll-btrfs-'));
  const image = join(directory, 'image');
  const run = (program: string, ...words: string[]) => execFileSync(program, words, { stdio: 'pipe' });
  try {
    writeFileSync(image, '');
    truncateSync(image, imageBytes);
    run('mkfs.btrfs', '-q', image);
    run('mkdir', join(directory, 'point'));
    run('mount', '-o', 'loop', image, join(directory, 'point'));
    run('umount', join(directory, 'point'));
    return undefined;
  } catch (error) {
    return `btrfs in a loop device (${(error as Error).message.split('\n')[0]})`;
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}
