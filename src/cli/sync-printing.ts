/** What people read of a sync: how the two sides differ, and which paths a filter means. */
import type { SyncStatus } from '../checkout/index.ts';
import { usage } from './checkout-words.ts';
import type { CommandCall } from './command-call.ts';
import { printable } from './readable.ts';

/** Paths are from the root of the checkout, wherever one stands in it. */
export function pathFilters(paths: readonly string[] | undefined): { readonly paths?: readonly string[] } {
  if (paths === undefined || paths.length === 0) return {};
  const bad = paths.find((path) => path.startsWith('/') || path.split('/').includes('..'));
  if (bad === undefined) return { paths };
  throw usage(`"${bad}" is not in the checkout.`, 'Give it from the root of the checkout, such as src/main.ts');
}

export async function printStatus(call: CommandCall, sandboxId: string, status: SyncStatus): Promise<void> {
  await call.print({ sandboxId, ...status }, () => {
    const { local, sandbox, sandboxUnknown, leftovers, interrupted } = status;
    return [
      ...(status.state === 'never' ? ['Nothing was ever sent to this sandbox.'] : []),
      ...(interrupted ? ['A pull or an undo was cut short here; the next sync finishes it.'] : []),
      ...named('A push would send', local),
      ...(sandbox === null ? [`What is in the sandbox is not known: ${sandboxUnknown}`] : []),
      ...named('A pull would bring', sandbox ?? []),
      ...named('Earlier conflicts are not resolved', leftovers),
      ...(status.state === 'same' ? ['Both sides are the same.'] : []),
      '',
    ].join('\n');
  });
}

function named(title: string, paths: readonly string[]): string[] {
  return paths.length === 0 ? [] : [`${title}:`, ...paths.map((path) => `  ${printable(path)}`)];
}
