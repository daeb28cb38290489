/** The files of one sandbox's directory that the node itself writes or reads. Its root file system is elsewhere, in the storage of layers. */
import { mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type PreparedFile, prepareFile, prepareSmallFile } from '../base/index.ts';
import type { EndReason, SandboxSettings } from '../protocol/index.ts';
import { slotsFileBytes, slotsFileName } from './settings-slots.ts';
import { type SharedPlaces, sharedName } from './shared-places.ts';

/** In the directory that the sandbox sees and cannot write: /etc/resolv.conf leads to it. */
export const resolverFile = 'resolv.conf';

/** Makes the directory of a sandbox that is not known yet. */
export async function makeSandboxDirectory(directory: string, shared: Pick<SharedPlaces, 'make'>): Promise<void> {
  await mkdir(directory, { mode: 0o700 });
  await Promise.all([
    shared.make(directory),
    writeFile(join(directory, slotsFileName), Buffer.alloc(slotsFileBytes), { mode: 0o600 }),
  ]);
}

/** Puts empty slots on the disk: whatever a loss of power takes, the next life has some to write to. Without them settings go into the record. */
export async function syncSlots(directory: string): Promise<void> {
  const file = await open(join(directory, slotsFileName), 'r+');
  try {
    await file.datasync();
  } finally {
    await file.close();
  }
}

/** What the sandbox sees as /run/atoll/metadata.json. It is written again from the record whenever a life begins. */
export function prepareMetadata(directory: string, settings: SandboxSettings): PreparedFile {
  const text = `${JSON.stringify({ version: settings.metadataVersion, metadata: settings.metadata })}\n`;
  return prepareSmallFile(join(directory, sharedName, 'metadata.json'), text, 0o644);
}

/** Where names are asked for; undefined: nowhere. */
export async function writeResolverFile(directory: string, nameserver: string | undefined): Promise<void> {
  const text = nameserver === undefined ? '# This sandbox has no network.\n' : `nameserver ${nameserver}\n`;
  const prepared = await prepareFile(join(directory, sharedName, resolverFile), text, { mode: 0o644, durable: false });
  await prepared.commit();
}

export async function writeMetadata(directory: string, settings: SandboxSettings): Promise<void> {
  const prepared = prepareMetadata(directory, settings);
  await prepared.commit();
}

/** The file in which init says why it ended; one a life, so that an earlier end is never taken for this one. */
export function endFileName(generation: number): string {
  return `end-${generation}`;
}

/** Why a life ended that the node did not end itself. */
export async function readEndReason(directory: string, generation: number): Promise<EndReason> {
  const text = await readFile(join(directory, endFileName(generation)), 'utf8').catch(() => '');
  switch (text.trim()) {
    case 'deadline':
      return 'expired';
    case 'shutdown':
      return 'requested';
    default:
      return 'crashed';
  }
}

/** Removes what an earlier life left that a new one would stumble over. */
export async function clearEarlierLife(directory: string, earlierGeneration: number): Promise<void> {
  await rm(join(directory, 'init.sock'), { force: true });
  await rm(join(directory, endFileName(earlierGeneration)), { force: true });
}
