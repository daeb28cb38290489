/**
 * Directories that are made for a user, who need not have the right to make them. Only the first missing one, in a directory that the user cannot write to, is
 * made by root and given away; what is below it the user makes. So nothing that the user could put in its place is ever given away.
 */
import { posix } from 'node:path';
import { isPlatformError } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import type { Account } from './accounts.ts';
import type { Entries } from './entries.ts';
import { EnvdError } from './envd-error.ts';

export class Directories {
  readonly #files: ControlPort['files'];
  readonly #entries: Entries;

  constructor(files: ControlPort['files'], entries: Entries) {
    this.#files = files;
    this.#entries = entries;
  }

  /** With all above it; one that is there is left as it is. */
  async ensure(sandbox: EnvdSandbox, path: string, user: Account): Promise<void> {
    const found = await this.#entries.find(sandbox, path, { follow: true });
    if (found?.type === 'directory') return;
    if (found !== undefined) throw new EnvdError('invalid_argument', `path '${path}' exists and is not a directory`);
    try {
      await this.#make(sandbox, path, { user: user.name, parents: true });
    } catch (error) {
      if (!isPlatformError(error, 'permission_denied')) throw error;
      await this.#makeFirst(sandbox, path, user);
      await this.#make(sandbox, path, { user: user.name, parents: true });
    }
  }

  async #makeFirst(sandbox: EnvdSandbox, path: string, user: Account): Promise<void> {
    let first = path;
    for (;;) {
      const above = posix.dirname(first);
      if (above === first || (await this.#entries.find(sandbox, above, { follow: true })) !== undefined) break;
      first = above;
    }
    await this.#make(sandbox, first, { parents: false });
    const { caller, sandboxId } = sandbox;
    await this.#files.changeAttributes(caller, sandboxId, {}, { path: first, owner: ownerOf(user) });
  }

  async #make({ caller, sandboxId }: EnvdSandbox, path: string, how: { user?: string; parents: boolean }) {
    await this.#files.makeDirectory(caller, sandboxId, {}, { path, ...how });
  }
}

export function ownerOf({ uid, gid }: Account): string {
  return `${uid}:${gid}`;
}
