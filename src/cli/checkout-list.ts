/** `atoll ls --here`: the sandboxes of this repository, or of all. */
import { basename } from 'node:path';
import { type ListedSandbox, listCheckouts } from '../checkout/index.ts';
import { openCache, openCheckoutHere } from './checkout-call.ts';
import type { CommandCall } from './command-call.ts';
import { readableSpan, readableTable, readableWhen } from './readable.ts';

const heads = ['ID', 'STATE', 'REPO', 'BRANCH', 'AGE', 'LAST EXEC', 'EXPIRES', 'USED BY', 'CHECKOUT'];
const commitLength = 10;

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
      repositoryName(item),
      item.ref.replace(/^branch:/, ''),
      item.createdAt === null ? '-' : readableSpan(nowMs - Date.parse(item.createdAt)),
      readableWhen(item.lastExecAt, nowMs),
      readableWhen(item.expiresAt, nowMs),
      item.holder ?? '-',
      item.root ?? 'elsewhere',
    ]);
    return readableTable(heads, rows);
  });
}

/** Its remote; without one the name of its directory here, or else the first commit. */
function repositoryName({ repository, root }: ListedSandbox): string {
  const [commit = '', remote = ''] = repository.split(/:(.*)/s);
  if (/^[0-9a-f]{40,}$/.test(commit) || commit === '') {
    return remote !== '' ? remote : root === null ? commit.slice(0, commitLength) : basename(root);
  }
  return root === null ? '-' : basename(root);
}
