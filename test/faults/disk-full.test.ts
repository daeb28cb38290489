/** A full disk: a clear refusal, nothing half-made, and everything works again when there is space. */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { isPlatformError } from '../../src/protocol/index.ts';
import { agreed, briskSettings, expectOnly, impatient, untilAnswered } from '../support/crashes.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);
const run = promisify(execFile);

interface SmallPlatform {
  readonly platform: Platform;
  /** The mount point of the disk that gets full. */
  readonly disk: string;
}

/** A platform of which `part` lies on a disk of its own, of 16 MB. */
async function startOnSmallDisk(part: 'far' | 'server'): Promise<SmallPlatform> {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-full-'));
  const disk = join(directory, part);
  await mkdir(disk);
  await run('mount', ['-t', 'tmpfs', '-o', 'size=16m,mode=0700', 'tmpfs', disk]);
  try {
    const options = { node: 'process', settings: briskSettings, dataDirectory: directory } as const;
    return { platform: await Platform.start(options), disk };
  } catch (error) {
    await run('umount', ['-l', disk]);
    throw error;
  }
}

async function close({ platform, disk }: SmallPlatform): Promise<void> {
  await free(disk);
  try {
    await platform.close().catch((error: NodeJS.ErrnoException) => {
      // The mount point itself cannot be removed while it is one.
      if (error.code !== 'EBUSY') throw error;
    });
  } finally {
    await run('umount', ['-l', disk]);
    await rm(platform.dataDirectory, { recursive: true, force: true });
  }
}

/** Writes until nothing more fits, not even a byte. */
async function fill(disk: string): Promise<void> {
  const file = await open(join(disk, 'filler'), 'a');
  try {
    for (const size of [1024 * 1024, 4096, 1]) {
      const bytes = Buffer.alloc(size);
      while (
        await file.write(bytes).then(
          ({ bytesWritten }) => bytesWritten === size,
          () => false,
        )
      );
    }
  } finally {
    await file.close();
  }
}

function free(disk: string): Promise<void> {
  return rm(join(disk, 'filler'), { force: true });
}

const full = { code: 'insufficient_storage' };
const refusals = ['insufficient_storage', 'outcome_unknown'] as const;

for (const part of ['far', 'server'] as const) {
  const name = part === 'far' ? "the node's disk" : "the server's disk";
  test(`${name} is full: changes are refused with insufficient_storage and leave nothing half-made`, async () => {
    const small = await startOnSmallDisk(part);
    try {
      const { platform, disk } = small;
      const box = await platform.client.sandboxes.create({ metadata: { before: 'yes' } });
      const unwanted = await platform.client.sandboxes.create();
      await box.exec('echo kept > /dev/shm/file');
      await fill(disk);

      await expect(impatient(platform).sandboxes.create({ name: 'too-much' })).rejects.toMatchObject(full);
      // What the refused one had taken of the directories made ahead is free again.
      await fill(disk);
      const inPatience = await impatient(platform).sandboxes.connect(box.id);
      if (part === 'far') {
        // What a node keeps of a few settings has its place already; many take a file of their own.
        const many = Object.fromEntries(Array.from({ length: 8 }, (_, at) => [`after${at}`, 'no'.repeat(1_000)]));
        await expect(inPatience.patchMetadata(many)).rejects.toSatisfy((error) => isPlatformError(error, ...refusals));
      }
      const few = inPatience.patchMetadata({ after: 'no' });
      if (part === 'far') await few;
      else await expect(few).rejects.toSatisfy((error) => isPlatformError(error, ...refusals));
      expect((await box.exec('cat /dev/shm/file')).stdout).toBe('kept\n');
      if (part === 'far') {
        // What only takes away needs no space.
        await unwanted.delete();
        await box.stop({ graceMs: 0 });
        expect((await platform.client.sandboxes.get(box.id)).state).toBe('stopped');
      }

      await free(disk);
      const { view } = await agreed(platform, box.id);
      if (part === 'far') expect(view.metadata).toEqual({ before: 'yes', after: 'no' });
      else expect([undefined, 'no']).toContain(view.metadata['after']);
      const again = await platform.client.sandboxes.connect(box.id);
      if (view.state === 'stopped') await again.start();
      await again.patchMetadata({ after: 'freed' });
      expect((await agreed(platform, box.id)).view.metadata).toEqual({ before: 'yes', after: 'freed' });
      const more = await untilAnswered(() => platform.client.sandboxes.create({ name: 'too-much' }));
      expect((await more.exec(['echo', 'usable'])).stdout).toBe('usable\n');
      if (part === 'server') await unwanted.delete();
      await expectOnly(platform, [box.id, more.id]);
    } finally {
      await close(small);
    }
  });
}
