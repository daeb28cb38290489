/**
 * The `host` template: a small skeleton of allow-listed files for `/`, and the machine's own /usr. No image is needed.
 *
 * Invariants:
 *  - A skeleton under its final name is complete and on disk; it is made under another name and renamed.
 *  - The name holds a fingerprint of the host's packages, so a host that changed gets a new skeleton and old sandboxes keep theirs.
 *  - Callers who ask at the same time share one build.
 */
import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import {
  chmod,
  chown,
  lstat,
  mkdir,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { syncDirectory } from '../base/index.ts';
import { PlatformError } from '../protocol/index.ts';
import { accountFiles } from './account-files.ts';
import { copyEntry } from './copy-tree.ts';
import { emptyDirectories, hostAllowList } from './host-allow-list.ts';

/** A set of trees that is taken as one. */
export interface TemplateLayers {
  /** For `/`, uppermost first. */
  readonly layers: readonly string[];
  /** For `/usr`, uppermost first. */
  readonly usrLayers: readonly string[];
}

const unfinishedPrefix = 'making-';

export class HostTemplate {
  readonly #hostRoot: string;
  readonly #directory: string;
  #building: Promise<TemplateLayers> | undefined;

  /** `hostRoot` is `/`; tests give a small tree of their own. */
  constructor(options: { readonly directory: string; readonly hostRoot?: string }) {
    this.#directory = options.directory;
    this.#hostRoot = options.hostRoot ?? '/';
  }

  /** Builds the skeleton if it is not there. The host is looked at once in the life of this object. */
  ensure(): Promise<TemplateLayers> {
    this.#building ??= this.#ensure().catch((error: unknown) => {
      this.#building = undefined; // The next caller tries again: a full disk may have room by then.
      throw error;
    });
    return this.#building;
  }

  async #ensure(): Promise<TemplateLayers> {
    const path = join(this.#directory, `host-${await fingerprintHost(this.#hostRoot)}`);
    if (!(await exists(path))) await this.#build(path);
    return { layers: [path], usrLayers: [join(this.#hostRoot, 'usr')] };
  }

  async #build(path: string): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    const unfinished = join(this.#directory, `${unfinishedPrefix}${randomBytes(8).toString('hex')}`);
    try {
      await buildSkeleton({ hostRoot: this.#hostRoot, target: unfinished });
      // One call for thousands of files; fsync of each takes seconds.
      await promisify(execFile)('sync', ['-f', unfinished]);
      await rename(unfinished, path).catch(async (error: unknown) => {
        if (!(await exists(path))) throw error; // Another process was first with the same one.
      });
      await syncDirectory(this.#directory);
    } finally {
      await rm(unfinished, { recursive: true, force: true });
    }
  }
}

/** Removes what a crash left of unfinished builds; only for the one process that uses the directory. */
export async function removeUnfinishedTemplates(directory: string): Promise<void> {
  const names = await readdir(directory).catch(() => []);
  const unfinished = names.filter((name) => name.startsWith(unfinishedPrefix));
  for (const name of unfinished) await rm(join(directory, name), { recursive: true, force: true });
}

/** Changes whenever a package of the host or the allow-list does. */
async function fingerprintHost(hostRoot: string): Promise<string> {
  const hash = createHash('sha256');
  hash.update(`list ${hostAllowList.version}\n`);
  for (const path of ['etc/os-release', 'var/lib/dpkg/status', 'etc/ld.so.cache']) {
    hash.update(`${path}\n`);
    hash.update(await readFile(join(hostRoot, path)).catch(() => 'absent'));
  }
  return hash.digest('hex').slice(0, 16);
}

async function buildSkeleton(options: { readonly hostRoot: string; readonly target: string }): Promise<void> {
  const { hostRoot, target } = options;
  await mkdir(target, { mode: 0o755 });
  for (const [path, mode] of emptyDirectories) {
    await mkdir(join(target, path));
    await chmod(join(target, path), mode);
  }
  await symlink('/run', join(target, 'var/run'));
  await symlink('/run/lock', join(target, 'var/lock'));
  for (const name of hostAllowList.links) await copyUsrLink(name, options);
  for (const path of hostAllowList.etc) {
    await copyEntry({ from: join(hostRoot, 'etc'), to: join(target, 'etc'), path });
  }
  for (const path of hostAllowList.var) {
    await copyEntry({ from: join(hostRoot, 'var'), to: join(target, 'var'), path });
  }
  await writeAccounts(options);
  await writeOwnFiles(target);
}

/** Only links that stay within /usr are taken. */
async function copyUsrLink(
  name: string,
  options: { readonly hostRoot: string; readonly target: string },
): Promise<void> {
  const from = join(options.hostRoot, name);
  const stats = await lstat(from).catch(() => undefined);
  if (stats === undefined) return;
  const to = stats.isSymbolicLink() ? await readlink(from) : '';
  if (!/^\/?usr\/[a-z0-9]+$/.test(to)) {
    throw new PlatformError(
      'isolation_failed',
      `The host template needs /${name} to be a link into /usr (a merged /usr).`,
    );
  }
  await symlink(to, join(options.target, name));
}

async function writeAccounts(options: { readonly hostRoot: string; readonly target: string }): Promise<void> {
  const etc = join(options.target, 'etc');
  const files = accountFiles({
    passwd: await readFile(join(options.hostRoot, 'etc/passwd'), 'utf8'),
    group: await readFile(join(options.hostRoot, 'etc/group'), 'utf8'),
  });
  await writeFile(join(etc, 'passwd'), files.passwd, { mode: 0o644 });
  await writeFile(join(etc, 'group'), files.group, { mode: 0o644 });
  for (const name of ['shadow', 'gshadow'] as const) {
    await writeFile(join(etc, name), files[name], { mode: 0o640 });
    await chown(join(etc, name), 0, files.shadowGid);
  }
  const home = join(options.target, 'home/user');
  await mkdir(home, { mode: 0o755 });
  await copyEntry({ from: join(options.hostRoot, 'etc'), to: home, path: 'skel' });
  for (const name of await readdir(join(home, 'skel')).catch(() => [])) {
    await rename(join(home, 'skel', name), join(home, name));
  }
  await rm(join(home, 'skel'), { recursive: true, force: true });
  for (const name of ['', ...(await readdir(home))]) await chown(join(home, name), 1000, 1000).catch(() => {});
}

const sudoers = `Defaults env_reset
Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) NOPASSWD:ALL
user ALL=(ALL:ALL) NOPASSWD:ALL
@includedir /etc/sudoers.d
`;

/** Files of the sandbox's own, in place of the host's. */
async function writeOwnFiles(target: string): Promise<void> {
  const etc = join(target, 'etc');
  await writeFile(join(etc, 'hostname'), 'sandbox\n');
  await writeFile(join(etc, 'hosts'), '127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n');
  await writeFile(join(etc, 'resolv.conf'), '');
  await writeFile(join(etc, 'machine-id'), '');
  await writeFile(join(etc, 'fstab'), '');
  await writeFile(join(etc, 'environment'), '');
  await symlink('/proc/self/mounts', join(etc, 'mtab'));
  // Also where the host has no sudo: it may be installed inside.
  await mkdir(join(etc, 'sudoers.d'), { mode: 0o750 });
  await writeFile(join(etc, 'sudoers'), sudoers, { mode: 0o440 });
}

async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined;
}
