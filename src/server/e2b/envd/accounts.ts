/**
 * Who a request acts as: users and groups of a sandbox, from its own files, and paths as the agent understands them. The sandbox writes these files:
 * they are read up to a bound and believed for its own files only.
 */
import { posix } from 'node:path';
import { isPlatformError, type SandboxId } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { EnvdError } from './envd-error.ts';

const accountsMaxBytes = 1024 * 1024;
/** Of users, and of groups. Files with more have short lines and nothing else to offer: the rest is not known. */
const accountsMax = 4_096;
/** How long what was read is believed, unless a name is missing in it. */
const keptMs = 2_000;
const sandboxesMax = 1_000;

export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  readonly home: string;
}

interface Known {
  readonly readAtMs: number;
  readonly users: readonly Account[];
  readonly groups: readonly { readonly name: string; readonly gid: number }[];
}

/** Whom a template means when nobody is named: this user where it has one, else root; and where it is. */
export const templateDefaults = { user: 'user', directory: '/home/user' } as const;
const root: Account = { name: 'root', uid: 0, gid: 0, home: '/root' };

export class Accounts {
  readonly #files: ControlPort['files'];
  readonly #known = new Map<SandboxId, Known>();

  constructor(files: ControlPort['files']) {
    this.#files = files;
  }

  /** Refuses a name that the sandbox does not have. */
  async userOf(sandbox: EnvdSandbox, name: string | undefined): Promise<Account> {
    const wanted = name ?? templateDefaults.user;
    const find = (known: Known) => known.users.find((user) => user.name === wanted);
    const found = find(await this.#read(sandbox)) ?? find(await this.#read(sandbox, { isFresh: true }));
    if (found !== undefined) return found;
    if (name === undefined || name === 'root') return root;
    throw new EnvdError('unauthenticated', `invalid username: '${name}'`);
  }

  /** Of ids; an id that has no name is its number. */
  async names(sandbox: EnvdSandbox): Promise<{ user(uid: number): string; group(gid: number): string }> {
    const { users, groups } = await this.#read(sandbox);
    return {
      user: (uid) => users.find((user) => user.uid === uid)?.name ?? String(uid),
      group: (gid) => groups.find((group) => group.gid === gid)?.name ?? String(gid),
    };
  }

  async #read(sandbox: EnvdSandbox, options: { readonly isFresh?: boolean } = {}): Promise<Known> {
    const { sandboxId } = sandbox;
    const before = this.#known.get(sandboxId);
    const isNew = before !== undefined && performance.now() - before.readAtMs < keptMs;
    if (isNew && options.isFresh !== true) return before;
    const [passwd, group] = await Promise.all([this.#text(sandbox, '/etc/passwd'), this.#text(sandbox, '/etc/group')]);
    const known = { readAtMs: performance.now(), users: usersIn(passwd), groups: groupsIn(group) };
    this.#known.delete(sandboxId);
    this.#known.set(sandboxId, known);
    this.#forgetOld();
    return known;
  }

  /** The oldest first: what is not believed any more is not kept either. */
  #forgetOld(): void {
    for (const [sandboxId, { readAtMs }] of this.#known) {
      if (this.#known.size <= sandboxesMax && performance.now() - readAtMs < keptMs) return;
      this.#known.delete(sandboxId);
    }
  }

  /** Empty where there is no such file, or none that can be read. */
  async #text({ caller, sandboxId }: EnvdSandbox, path: string): Promise<string> {
    const wanted = { path, offset: 0, length: accountsMaxBytes };
    try {
      const { bytes } = await this.#files.read(caller, sandboxId, {}, wanted, AbortSignal.timeout(10_000));
      const chunks: Uint8Array[] = [];
      for await (const chunk of bytes) chunks.push(chunk);
      return Buffer.concat(chunks).toString('utf8');
    } catch (error) {
      if (isPlatformError(error, 'file_not_found', 'not_a_directory', 'is_a_directory', 'file_not_usable')) return '';
      throw error;
    }
  }
}

/** An absolute path: what is empty is the default directory, what is relative is below the home. */
export function placeOf(path: string, user: Account): string {
  if (path === '') return user.name === 'root' ? user.home : templateDefaults.directory;
  if (path.startsWith('/')) return posix.normalize(path);
  if (path === '~' || path.startsWith('~/')) return posix.join(user.home, path.slice(1));
  if (path.startsWith('~'))
    throw new EnvdError('invalid_argument', `cannot expand the home of another user: '${path}'`);
  return posix.join(user.home, path);
}

function usersIn(passwd: string): Account[] {
  return linesOf(passwd).flatMap((line) => {
    const [name = '', , uid = '', gid = '', , home = ''] = line.split(':');
    if (name === '' || !/^\d{1,5}$/.test(uid) || !/^\d{1,5}$/.test(gid)) return [];
    return [{ name, uid: Number(uid), gid: Number(gid), home: home.startsWith('/') ? home : '/' }];
  });
}

function groupsIn(group: string) {
  return linesOf(group).flatMap((line) => {
    const [name = '', , gid = ''] = line.split(':');
    return name !== '' && /^\d{1,5}$/.test(gid) ? [{ name, gid: Number(gid) }] : [];
  });
}

function linesOf(text: string): string[] {
  return text.split('\n', accountsMax);
}
