/**
 * Makes new settings true: in init, in the file that the sandbox sees, and in the record.
 *
 * Everything that can fail for lack of space or because the sandbox is ending happens before anything is visible. The fence only grows
 * and cannot be taken back, so it comes after the last step that can be refused; from there on the settings are carried through.
 */
import { isDeepStrictEqual } from 'node:util';
import type { FaultPoints, PreparedFile } from '../base/index.ts';
import { type InitClient, InitRefusal, refusalCodes } from '../execution/index.ts';
import { PlatformError } from '../protocol/index.ts';
import { type NodeRecord, prepareRecord } from './node-record.ts';
import { prepareMetadata } from './sandbox-files.ts';
import type { SettingsFile, SettingsFiles } from './settings-files.ts';
import { encodeSlot } from './settings-slots.ts';

interface Application {
  readonly record: NodeRecord;
  readonly next: NodeRecord;
  /** `undefined` when the sandbox does not run. */
  readonly client: InitClient | undefined;
  readonly directory: string;
  readonly files: SettingsFiles;
  readonly faults: FaultPoints;
}

export async function applySettings(options: Application): Promise<NodeRecord> {
  const { record, directory, files } = options;
  const file = await files.take(directory, record);
  try {
    return await applyWith(file, options);
  } finally {
    if (file !== undefined) await files.giveBack(directory, file);
  }
}

async function applyWith(file: SettingsFile | undefined, options: Application): Promise<NodeRecord> {
  const { record, next, client, directory, faults } = options;
  const prepared: PreparedFile[] = [];
  try {
    prepared.push(await prepareSettings(file, { directory, next }));
    if (!isDeepStrictEqual(metadataOf(next), metadataOf(record))) {
      prepared.push(prepareMetadata(directory, next.settings));
    }
    await faults.hit('node-settings-before-init');
    if (client !== undefined) await tellInit(client, { record, next });
  } catch (error) {
    for (const one of prepared) await one.discard();
    throw error;
  }
  await faults.hit('node-settings-before-commit');
  await Promise.all(
    prepared.map(async (one) => {
      await one.commit();
      await faults.hit('node-settings-after-file');
    }),
  );
  await faults.hit('node-settings-before-answer');
  return next;
}

/** Into a slot, whose space is there already; what does not fit into one takes the whole record. */
async function prepareSettings(
  file: SettingsFile | undefined,
  options: { readonly directory: string; readonly next: NodeRecord },
): Promise<PreparedFile> {
  const slot = file && encodeSlot(options.next);
  if (file === undefined || slot === undefined) return await prepareRecord(options.directory, options.next);
  return { commit: () => file.write(slot), discard: async () => {} };
}

function metadataOf({ settings }: NodeRecord) {
  return [settings.metadataVersion, settings.metadata];
}

async function tellInit(
  client: InitClient,
  options: { readonly record: NodeRecord; readonly next: NodeRecord },
): Promise<void> {
  const { record, next } = options;
  try {
    if (next.deadlineBootMs !== record.deadlineBootMs) {
      await client.control((connection) => connection.setDeadline(next.deadlineBootMs));
    }
    if (next.settings.leaseToken !== record.settings.leaseToken) await tellFence(client, options);
  } catch (error) {
    if (!(error instanceof InitRefusal)) throw error;
    const ending = error.refusal.code === refusalCodes.ending;
    throw ending
      ? new PlatformError('sandbox_wrong_state', 'The sandbox is ending; nothing was changed.', {
          details: { state: 'stopping' },
        })
      : new PlatformError('sandbox_unavailable', `The sandbox refused its settings: ${error.refusal.text}`);
  }
}

async function tellFence(
  client: InitClient,
  options: { readonly record: NodeRecord; readonly next: NodeRecord },
): Promise<void> {
  try {
    await client.control((connection) => connection.setFence(options.next.settings.leaseToken));
  } catch (error) {
    // An init that cannot be reached keeps the new deadline until it is found again, which compares it with the record.
    await client.control((connection) => connection.setDeadline(options.record.deadlineBootMs)).catch(() => {});
    throw error;
  }
}
