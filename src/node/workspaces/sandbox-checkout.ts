/** A checkout in a sandbox of this node, through its file workers. The life is looked at anew for every request. */
import { nameBytes } from '../../base/index.ts';
import { type FileContext, listBelow, openBelow, type SeenEntry } from '../../execution/index.ts';

import type { CheckoutEntry, CheckoutFiles } from './checkout-files.ts';

export function sandboxCheckout(context: () => FileContext, directory: string): CheckoutFiles {
  return {
    list: async (limit, signal) => (await listBelow(context(), directory, limit, signal)).map(entryOf),
    read: async (path, signal) => {
      const { stat, bytes } = await openBelow(context(), { directory, path: nameBytes(path) }, signal);
      return { entry: factsOf({ stat, linkTarget: Buffer.alloc(0) }), bytes };
    },
  };
}

function entryOf(seen: SeenEntry): CheckoutEntry {
  return { path: seen.path.toString('latin1'), ...factsOf(seen) };
}

function factsOf({ stat, linkTarget }: Pick<SeenEntry, 'stat' | 'linkTarget'>): Omit<CheckoutEntry, 'path'> {
  const { type, mode, modifiedNs, changedNs, inode } = stat;
  const target = type === 'symlink' ? linkTarget.toString('latin1') : null;
  return { type, mode, sizeBytes: stat.size, modifiedNs, changedNs, inode, linkTarget: target };
}
