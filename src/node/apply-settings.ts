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
import { initDeadlineOf } from './deadline.ts';
import { type NodeRecord, prepareRecord, writeRecord } from './node-record.ts';
import { prepareMetadata, writeMetadata } from './sandbox-files.ts';
import type { SandboxNetworks } from './sandbox-networks.ts';
import type { SettingsFile, SettingsFiles } from './settings-files.ts';
import { encodeSlot } from './settings-slots.ts';

interface Application {
  readonly record: NodeRecord;
  readonly next: NodeRecord;
  /** `undefined` when the sandbox does not run. */
  readonly client: InitClient | undefined;
  readonly directory: string;
  readonly files: SettingsFiles;
  readonly networks: SandboxNetworks;
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
  const { record, next, client, faults } = options;
  const prepared: PreparedPart[] = [];
  const network = networkChange(options);
  try {
    prepared.push(await prepareSettings(file, options));
    if (!isDeepStrictEqual(metadataOf(next), metadataOf(record))) prepared.push(prepareShown(options));
    await faults.hit('node-settings-before-init');
    await network.apply();
    if (client !== undefined) await tellInit(client, { record, next });
  } catch (error) {
    for (const part of prepared) await part.discard();
    await network.takeBack();
    throw error;
  }
  await faults.hit('node-settings-before-commit');
  await commitAll(prepared, { network, faults });
  await faults.hit('node-settings-before-answer');
  return next;
}

interface NetworkChange {
  apply(): Promise<void>;
  /** What was reached before is reached again, if it was changed. */
  takeBack(): Promise<void>;
}

/** Of a sandbox that does not run there is nothing to change: its next life begins with what the record says. */
function networkChange({ record, next, client, directory, networks, faults }: Application): NetworkChange {
  const { sandboxId } = record.mark;
  const isChanged = client !== undefined && !isDeepStrictEqual(next.settings.network, record.settings.network);
  let isApplied = false;
  return {
    apply: async () => {
      if (!isChanged) return;
      await networks.change({ sandboxId, directory, policy: next.settings.network });
      isApplied = true;
      await faults.hit('node-settings-after-network');
    },
    takeBack: async () => {
      if (isApplied) await networks.change({ sandboxId, directory, policy: record.settings.network });
    },
  };
}

/** One of the two places that settings are written to. */
interface PreparedPart extends PreparedFile {
  readonly name: 'settings' | 'metadata';
  /** After its commit: what was there before is there again. */
  takeBack(): Promise<void>;
}

/** Into a slot, whose space is there already; what does not fit into one takes the whole record. */
async function prepareSettings(file: SettingsFile | undefined, options: Application): Promise<PreparedPart> {
  const { record, next, directory } = options;
  const name = 'settings';
  // A slot counts by its version: a pause that nobody ordered has none of its own, and goes into the record.
  const slot = next.version > record.version ? file && encodeSlot(next) : undefined;
  if (file !== undefined && slot !== undefined) {
    return {
      name,
      commit: async () => file.write(slot),
      discard: async () => {},
      takeBack: async () => file.takeBack(),
    };
  }
  return { name, ...(await prepareRecord(directory, next)), takeBack: () => writeRecord(directory, record) };
}

function prepareShown({ directory, record, next }: Application): PreparedPart {
  const takeBack = () => writeMetadata(directory, record.settings);
  return { name: 'metadata', ...prepareMetadata(directory, next.settings), takeBack };
}

/** All at once, because each waits for the disk; all or none, because a refusal says that nothing was changed. */
async function commitAll(
  prepared: readonly PreparedPart[],
  { network, faults }: { readonly network: NetworkChange; readonly faults: FaultPoints },
): Promise<void> {
  const ends = await Promise.allSettled(
    prepared.map(async (part) => {
      await part.commit();
      await faults.hit(`node-settings-after-${part.name}`);
    }),
  );
  const failure = ends.find((end) => end.status === 'rejected');
  if (failure === undefined) return;
  try {
    // Those that failed too: how far they came is not known.
    for (const part of prepared) await part.takeBack();
    await network.takeBack();
  } catch (error) {
    const message = 'The settings reached one of two places only; look before you repeat the change.';
    throw new PlatformError('outcome_unknown', message, { cause: error });
  }
  throw failure.reason;
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
    if (initDeadlineOf(next) !== initDeadlineOf(record)) {
      await client.control((connection) => connection.setDeadline(initDeadlineOf(next)));
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
    await client.control((connection) => connection.setDeadline(initDeadlineOf(options.record))).catch(() => {});
    throw error;
  }
}
