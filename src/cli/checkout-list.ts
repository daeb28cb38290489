/** `atoll ls --here`: the sandboxes of this repository, or of all. */
import { listCheckouts } from '../checkout/index.ts';
import { openCache, openCheckoutHere } from './checkout-call.ts';
import type { CommandCall } from './command-call.ts';
import { readableTable, readableWhen } from './readable.ts';

export async function listHere(call: CommandCall, options: { readonly allRepos: boolean }): Promise<void> {
  const { found } = options.allRepos ? { found: undefined } : await openCheckoutHere(call);
  const items = await listCheckouts({
    client: await call.client(),
    cache: openCache(call),
    ...(found && { repository: found.identity.repository }),
  });
  const nowMs = call.io.nowMs();
  await call.print({ items }, () => {
    if (items.length === 0) return 'No sandbox yet. Make one with: atoll exec -- COMMAND\n';
    const rows = items.map((item) => [
      item.id,
      item.status,
      item.ref.replace(/^branch:/, ''),
      item.createdAt === null ? '-' : readableWhen(item.createdAt, nowMs),
      readableWhen(item.lastExecAt, nowMs),
      readableWhen(item.expiresAt, nowMs),
      item.holder ?? '-',
      item.root ?? 'elsewhere',
    ]);
    return readableTable(['ID', 'STATE', 'BRANCH', 'CREATED', 'LAST EXEC', 'EXPIRES', 'USED BY', 'CHECKOUT'], rows);
  });
}
