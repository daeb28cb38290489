/**
 * Makes new settings true: in the network, in init, in the file that the sandbox sees, and in the record.
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
import type { SandboxNetworks } from './sandbox-networks.ts';

export async function applySettings(options: {
  readonly record: NodeRecord;
  readonly next: NodeRecord;
  /** `undefined` when the sandbox does not run. */
  readonly client: InitClient | undefined;
  readonly directory: string;
  readonly faults: FaultPoints;
  readonly networks: SandboxNetworks;
}): Promise<NodeRecord> {
  const { record, next, client, directory, faults, networks } = options;
  const { sandboxId } = record.mark;
  const isNetworkChanged = !isDeepStrictEqual(next.settings.network, record.settings.network);
  const prepared: PreparedFile[] = [];
  let isNetworkApplied = false;
  try {
    if (!isDeepStrictEqual(metadataOf(next), metadataOf(record))) {
      prepared.push(await prepareMetadata(directory, next.settings));
    }
    prepared.push(await prepareRecord(directory, next));
    await faults.hit('node-settings-before-init');
    if (isNetworkChanged) {
      await networks.change({ sandboxId, directory, policy: next.settings.network });
      isNetworkApplied = true;
      await faults.hit('node-settings-after-network');
    }
    if (client !== undefined) await tellInit(client, { record, next });
  } catch (error) {
    for (const file of prepared) await file.discard();
    if (isNetworkApplied) await networks.change({ sandboxId, directory, policy: record.settings.network });
    throw error;
  }
  await faults.hit('node-settings-before-commit');
  for (const file of prepared) await file.commit();
  await faults.hit('node-settings-before-answer');
  return next;
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
