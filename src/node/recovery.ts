/**
 * What a node does when it starts: finds the sandboxes that went on without it, notes those that did not, removes what was half-made or
 * half-deleted. It never removes a directory whose record it cannot read.
 */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock, Logger } from '../base/index.ts';
import { InitClient, InitRefusal, refusalCodes } from '../execution/index.ts';
import { removeUnfinishedTemplates } from '../layers/index.ts';
import { type EndReason, isId, type QuarantinedSandbox } from '../protocol/index.ts';
import { initDeadlineOf } from './deadline.ts';
import type { IdSlots } from './id-slots.ts';
import type { NodePaths } from './node-paths.ts';
import { type NodeRecord, readRecord, writeRecord } from './node-record.ts';
import { readEndReason, writeMetadata } from './sandbox-files.ts';
import type { SandboxLives } from './sandbox-lives.ts';
import type { RunningSandbox } from './sandbox-networks.ts';
import type { SharedPlaces } from './shared-places.ts';

const concurrency = 32;

interface RecoveryContext {
  readonly paths: NodePaths;
  readonly lives: SandboxLives;
  readonly slots: IdSlots;
  readonly shared: SharedPlaces;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface FoundSandbox {
  record: NodeRecord;
  client: InitClient | undefined;
}

export interface Recovered {
  readonly sandboxes: FoundSandbox[];
  readonly quarantined: QuarantinedSandbox[];
  /** Trees of deleted sandboxes, and spare ones, that are still to be removed. */
  readonly trash: string[];
}

export async function recoverSandboxes(context: RecoveryContext): Promise<Recovered> {
  const { paths, lives, shared } = context;
  for (const name of await readdir(paths.making)) {
    await lives.clear(name);
    await lives.removeTree(join(paths.making, name));
  }
  if (!paths.sharesLayers) await removeUnfinishedTemplates(paths.layers);
  const found: Recovered = { sandboxes: [], quarantined: [], trash: await listTrash(paths) };
  const names = await readdir(paths.sandboxes);
  await shared.removeOthers(names.map((name) => join(paths.sandboxes, name)));
  const left = names.values();
  const worker = async () => {
    for (const name of left) await recoverOne(context, name, found);
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  const known = new Set(names);
  for (const name of await lives.listGroups()) if (!known.has(name)) await lives.clear(name);
  return found;
}

/** For the networks: none where it does not run. */
export function runningOf({ record, client }: FoundSandbox, paths: NodePaths): RunningSandbox[] {
  const { sandboxId } = record.mark;
  const policy = record.settings.network;
  return client === undefined ? [] : [{ sandboxId, directory: paths.sandbox(sandboxId), policy }];
}

async function listTrash(paths: NodePaths): Promise<string[]> {
  const lists = [paths.trash, paths.spare].map(async (parent) =>
    (await readdir(parent)).map((name) => join(parent, name)),
  );
  return (await Promise.all(lists)).flat();
}

async function recoverOne(context: RecoveryContext, name: string, found: Recovered): Promise<void> {
  const directory = join(context.paths.sandboxes, name);
  try {
    const record = await readRecord(directory);
    if (record === undefined) throw new Error('It holds no record.');
    if (!isId('sandbox', name) || record.mark.sandboxId !== name) {
      throw new Error(`Its record is of ${record.mark.sandboxId}.`);
    }
    if (!context.slots.takeExactly(record.slot))
      throw new Error(`Its range of user ids, ${record.slot}, is another's.`);
    found.sandboxes.push(await findLife(context, { record, directory }));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    context.log.error('A sandbox directory cannot be used; it is kept as it is.', { directory, why });
    found.quarantined.push({ directory, why });
  }
}

async function findLife(
  context: RecoveryContext,
  options: { readonly record: NodeRecord; readonly directory: string },
): Promise<FoundSandbox> {
  const { record, directory } = options;
  const { sandboxId } = record.mark;
  if (record.life.kind === 'ended') {
    // A start that was cut short may have left a life that no record knows.
    await context.lives.clear(sandboxId);
    return { record, client: undefined };
  }
  const client = record.bootId === context.clock.bootId ? await reconnect(context, options) : undefined;
  if (client !== undefined) return { record, client };
  await context.lives.clear(sandboxId);
  const reason: EndReason =
    record.bootId === context.clock.bootId ? await readEndReason(directory, record.generation) : 'machine_rebooted';
  const ended: NodeRecord = { ...record, life: { kind: 'ended', reason, atMs: context.clock.nowMs() } };
  await writeRecord(directory, ended);
  return { record: ended, client: undefined };
}

async function reconnect(
  context: RecoveryContext,
  options: { readonly record: NodeRecord; readonly directory: string },
): Promise<InitClient | undefined> {
  const { record, directory } = options;
  let client: InitClient | undefined;
  try {
    client = await InitClient.connect({ directory, generation: record.generation });
    await restoreSettings(client, record);
    await restoreMetadata(context, options);
    // The record says whether it stands still; a checkpoint, a pause or a resume may have been cut short.
    await context.lives.setFrozen(record.mark.sandboxId, record.life.kind === 'paused');
    return client;
  } catch (error) {
    context.log.warn('A sandbox did not outlive the node.', { sandboxId: record.mark.sandboxId, error });
    await client?.close();
    return undefined;
  }
}

/** A crash between init and the record leaves init ahead: the record is what counts, except that a fence never goes back. */
async function restoreSettings(client: InitClient, record: NodeRecord): Promise<void> {
  const status = await client.control((connection) => connection.status());
  const deadlineBootMs = initDeadlineOf(record);
  if (status.deadlineBootMs !== deadlineBootMs) await restoreDeadline(client, deadlineBootMs);
  if (status.fence < record.settings.leaseToken) {
    await client.control((connection) => connection.setFence(record.settings.leaseToken));
  }
}

/** A crash between the two files of a change leaves the sandbox with a map that was never recorded. */
async function restoreMetadata(
  context: RecoveryContext,
  options: { readonly record: NodeRecord; readonly directory: string },
): Promise<void> {
  const { record, directory } = options;
  await writeMetadata(directory, record.settings).catch((error: unknown) => {
    context.log.error('The metadata inside a sandbox could not be written.', { directory, error });
  });
}

async function restoreDeadline(client: InitClient, deadlineBootMs: number): Promise<void> {
  try {
    await client.control((connection) => connection.setDeadline(deadlineBootMs));
  } catch (error) {
    // One that is ending says why when it is gone; killing it now would lose the reason.
    if (!(error instanceof InitRefusal) || error.refusal.code !== refusalCodes.ending) throw error;
  }
}
