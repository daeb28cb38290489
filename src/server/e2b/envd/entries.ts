/** Files as the agent shows them: what a path is itself, and for a symlink also what it leads to. */
import { posix } from 'node:path';
import { type FileView, isPlatformError } from '../../../protocol/index.ts';
import type { ControlPort, Shown } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import type { Accounts } from './accounts.ts';
import { unprefixed } from './labels.ts';
import type { Message } from './messages.ts';

type View = Shown<FileView>;

/** As the kernel has it. */
const linksMax = 40;

export class Entries {
  readonly #files: ControlPort['files'];
  readonly #accounts: Accounts;

  constructor(files: ControlPort['files'], accounts: Accounts) {
    this.#files = files;
    this.#accounts = accounts;
  }

  /** Refuses what is not there. */
  async get(sandbox: EnvdSandbox, path: string): Promise<Message> {
    return await this.of(sandbox, await this.look(sandbox, path));
  }

  /** Of the path itself, or of what it leads to. */
  async look(sandbox: EnvdSandbox, path: string, options: { readonly follow?: boolean } = {}): Promise<View> {
    const followLinks = options.follow === true ? 'true' : 'false';
    return await this.#files.stat(sandbox.caller, sandbox.sandboxId, {}, { path, followLinks });
  }

  async find(
    sandbox: EnvdSandbox,
    path: string,
    options: { readonly follow?: boolean } = {},
  ): Promise<View | undefined> {
    try {
      return await this.look(sandbox, path, options);
    } catch (error) {
      if (isPlatformError(error, 'file_not_found', 'not_a_directory')) return undefined;
      throw error;
    }
  }

  async of(sandbox: EnvdSandbox, view: View): Promise<Message> {
    const names = await this.#accounts.names(sandbox);
    const isLink = view.type === 'symlink';
    const target = isLink ? await this.#target(sandbox, view.path) : undefined;
    const about = isLink ? target?.view : view;
    const metadata = about?.type === 'file' ? await this.#metadata(sandbox, view.path) : {};
    return {
      name: posix.basename(view.path),
      type: typeNames[about?.type ?? 'other'],
      path: view.path,
      size: String(view.sizeBytes),
      mode: Number.parseInt(about?.mode ?? '0', 8) & 0o777,
      permissions: permissionsOf(view),
      owner: names.user(view.uid),
      group: names.group(view.gid),
      modifiedTime: view.modifiedAt,
      ...(target !== undefined && { symlinkTarget: target.path }),
      ...(Object.keys(metadata).length > 0 && { metadata }),
    };
  }

  /** Of a file that went away meanwhile there is none. */
  async #metadata({ caller, sandboxId }: EnvdSandbox, path: string): Promise<Record<string, string>> {
    try {
      return unprefixed((await this.#files.labels(caller, sandboxId, {}, { path })).labels);
    } catch (error) {
      if (isPlatformError(error, 'file_not_found', 'not_a_directory', 'file_not_usable')) return {};
      throw error;
    }
  }

  /** Where a symlink leads in the end; undefined: nowhere. */
  async #target(sandbox: EnvdSandbox, path: string): Promise<{ path: string; view: View } | undefined> {
    const left = path.split('/').filter((part) => part !== '');
    let real = '/';
    let view: View | undefined;
    for (let links = 0; left.length > 0; ) {
      const part = left.shift()!;
      if (part === '.' || part === '..') {
        real = posix.join(real, part);
        continue;
      }
      const next = posix.join(real, part);
      view = await this.find(sandbox, next);
      if (view === undefined) return undefined;
      if (view.type !== 'symlink') {
        real = next;
        continue;
      }
      if (++links > linksMax || view.linkTarget === null) return undefined;
      if (view.linkTarget.startsWith('/')) real = '/';
      left.unshift(...view.linkTarget.split('/').filter((piece) => piece !== ''));
      view = undefined;
    }
    view ??= await this.find(sandbox, real);
    return view === undefined ? undefined : { path: real, view };
  }
}

const typeNames = {
  file: 'FILE_TYPE_FILE',
  directory: 'FILE_TYPE_DIRECTORY',
  symlink: 'FILE_TYPE_UNSPECIFIED',
  other: 'FILE_TYPE_UNSPECIFIED',
} as const;

/** `drwxr-xr-x`: the letters of what it is and of its special bits, or a dash, and then the rights. */
export function permissionsOf({ type, mode }: Pick<View, 'type' | 'mode'>): string {
  const bits = Number.parseInt(mode, 8);
  const kind = type === 'directory' ? 'd' : type === 'symlink' ? 'L' : '';
  const special = `${bits & 0o4000 ? 'u' : ''}${bits & 0o2000 ? 'g' : ''}${bits & 0o1000 ? 't' : ''}`;
  const rights = [...'rwxrwxrwx'].map((letter, at) => (bits & (0o400 >> at) ? letter : '-')).join('');
  return `${kind + special || '-'}${rights}`;
}
