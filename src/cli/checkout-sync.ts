/** Opens the sync engine for a checkout, and binds it to the directory that the definition names. */
import {
  type Definition,
  type FoundCheckout,
  openCheckout,
  pull,
  push,
  type SyncPort,
  status,
} from '../checkout/index.ts';

export interface SyncTarget {
  readonly found: FoundCheckout;
  readonly definition: Definition;
  readonly stateDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export async function openSync({ found, definition, stateDirectory, env }: SyncTarget): Promise<SyncPort> {
  const checkout = await openCheckout(found.root, { env, stateDirectory });
  const { directory } = definition;
  return {
    push: (sandbox, call) => push(checkout, sandbox, { ...call, directory }),
    pull: (sandbox, call) => pull(checkout, sandbox, { ...call, directory }),
    status: (sandbox, call = {}) => status(checkout, sandbox, { ...call, directory }),
  };
}
