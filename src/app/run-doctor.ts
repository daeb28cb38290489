/** Tries what this machine can do. Nothing of it is left behind. */
import { mkdir, mkdtemp, realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { runDoctor as examine, type Finding, LayerOperations, Spawner } from '../isolation/index.ts';
import { probeGit, probeStorage, type StorageKind } from '../layers/index.ts';
import { defaultDataDirectory } from './data-directory.ts';
import { ensureNativeInit } from './native-init.ts';

export interface Diagnosis {
  /** Every required guard works. */
  readonly ok: boolean;
  readonly checks: readonly Finding[];
}

export async function runDoctor(options: { readonly dataDirectory?: string } = {}): Promise<Diagnosis> {
  const dataDirectory = options.dataDirectory ?? defaultDataDirectory();
  let initProgram: string;
  try {
    initProgram = await ensureNativeInit();
    await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return {
      ok: false,
      checks: [{ name: 'set-up', ok: false, required: true, message, fix: 'apt-get install gcc libc6-dev' }],
    };
  }
  const checks = [
    ...(await examine({ dataDirectory, initProgram })),
    await lookAtStorage(dataDirectory, initProgram),
    await lookAtGit(),
  ];
  return { ok: checks.every((check) => check.ok || !check.required), checks };
}

const storageMessages: Readonly<Record<StorageKind, string>> = {
  subvolumes: 'The data directory is on btrfs: checkpoints take no time at any size, and disks can be limited.',
  pool: 'A pool of btrfs can be made in the data directory: checkpoints take no time at any size, and disks can be limited.',
  directories: 'Only plain directories: a checkpoint of a running sandbox is a copy, and disks cannot be limited.',
};

/** What sandboxes' files would stand on, tried in a directory of its own that is gone afterwards. */
async function lookAtStorage(dataDirectory: string, initProgram: string): Promise<Finding> {
  const name = 'storage';
  const fix =
    'apt-get install btrfs-progs, and run where loop devices can be used; or put the data directory on btrfs.';
  const parent = await realpath(dataDirectory);
  const spawner = new Spawner({ program: initProgram, directory: parent });
  try {
    await spawner.ready();
    const operations = new LayerOperations(spawner);
    const directory = await mkdtemp(join(parent, 'doctor-'));
    const { kind, reason } = await probeStorage({ directory, operations }).finally(() =>
      operations.removeTree(directory),
    );
    const ok = kind !== 'directories';
    const message = ok ? storageMessages[kind] : `${storageMessages[kind]} ${reason}`;
    return { name, ok, required: false, message, fix: ok ? '' : fix };
  } catch (error) {
    return { name, ok: false, required: false, message: error instanceof Error ? error.message : String(error), fix };
  } finally {
    await spawner.close();
  }
}

async function lookAtGit(): Promise<Finding> {
  const about = { name: 'git', required: false };
  try {
    return { ...about, ok: true, message: await probeGit(), fix: '' };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return { ...about, ok: false, message, fix: 'apt-get install git; workspaces need 2.38 or newer.' };
  }
}
