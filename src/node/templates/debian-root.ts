/**
 * A root file system from Debian packages. Packages are unpacked in one sandbox (with this machine's dpkg-deb and tar, on the `host`
 * template), and their maintainer scripts run in a second one whose root is what was unpacked. Neither has a network, and no line of a package
 * runs outside of them.
 */
import { constants, copyFile, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { HostTemplate, ResolvedPackage, ResolvedPackages } from '../../layers/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { BuildSandbox, type BuildSandboxParts, ensureEmptyLayer } from './build-sandbox.ts';

/** Changes with what is below: a root that was made otherwise is another layer. */
export const debianRecipeVersion = 1;

const packagesDirectory = '/.packages';
const noNetwork = { mode: 'none', allow: [], deny: [] } as const;
const root = { user: '0:0', workdir: '/', env: { DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C.UTF-8' } } as const;

/** Enough for maintainer scripts to run: the files of the essential packages, on a merged /usr. */
const unpack = `set -eu
umask 022
mkdir /target
cd /target
for name in bin sbin lib lib32 lib64 libx32; do
  mkdir -p usr/$name
  ln -s usr/$name $name
done
for package in ${packagesDirectory}/essential/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -p --numeric-owner --keep-directory-symlink -f - -C /target
done
mkdir -p dev proc sys run tmp workspace var/lib/dpkg
chmod 1777 tmp
chmod 0777 workspace
`;

/** The layer is synced as a whole afterwards. Dependencies among the essential ones go round in circles; their files are all there, so they are taken as met. */
const configure = `set -eu
umask 022
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod 0755 /usr/sbin/policy-rc.d
test -e /var/lib/dpkg/status || : > /var/lib/dpkg/status
test -e /etc/passwd || cp /usr/share/base-passwd/passwd.master /etc/passwd
test -e /etc/group || cp /usr/share/base-passwd/group.master /etc/group
test -e /usr/bin/awk || ln -s mawk /usr/bin/awk
dpkg --force-depends --force-confnew --force-unsafe-io --install ${packagesDirectory}/essential/*.deb
if ls ${packagesDirectory}/others/*.deb > /dev/null 2>&1; then
  dpkg --force-depends --force-confnew --force-unsafe-io --install ${packagesDirectory}/others/*.deb
fi
dpkg --configure --pending
apt-get check -qq
rm -f /usr/sbin/policy-rc.d
rm -rf ${packagesDirectory} /var/cache/apt/archives/*.deb /var/log/apt/* /var/log/dpkg.log /var/log/alternatives.log
for name in lib32 libx32; do
  rmdir /usr/$name 2> /dev/null || true
  test -d /usr/$name || rm -f /$name
done
: > /etc/machine-id
mkdir -p /var/lib/apt/lists/partial /var/cache/apt/archives/partial
`;

interface Making {
  readonly parts: BuildSandboxParts;
  readonly host: HostTemplate;
  readonly say: (text: string) => void;
  readonly signal: AbortSignal;
}

/** The sandbox whose tree is the root; it has ended, and is the caller's to discard. */
export async function makeDebianRoot(packages: ResolvedPackages, making: Making): Promise<BuildSandbox> {
  const unpacked = await BuildSandbox.make(making.parts);
  try {
    await unpackEssential(unpacked, packages, making);
    const root = await BuildSandbox.make(making.parts);
    try {
      await root.adoptTree(join(unpacked.tree, 'target'));
      await configureAll(root, packages, making);
      return root;
    } catch (error) {
      await root.discard();
      throw error;
    }
  } finally {
    await unpacked.discard();
  }
}

async function unpackEssential(sandbox: BuildSandbox, packages: ResolvedPackages, making: Making): Promise<void> {
  const { parts, host, signal } = making;
  const { layers, usrLayers } = await host.ensure();
  await putPackages(sandbox, { essential: packages.essential });
  const names = layers.map((path) => path.slice(parts.paths.layers.length + 1));
  await sandbox.start({ layers: names, usrLayers, network: noNetwork }, { hasOwnNames: true });
  making.say(`unpacking ${packages.essential.length} essential packages\n`);
  await runScript(sandbox, unpack, { what: 'Unpacking the packages', signal, say: making.say });
  await sandbox.end();
}

async function configureAll(sandbox: BuildSandbox, packages: ResolvedPackages, making: Making): Promise<void> {
  await putPackages(sandbox, { ...packages });
  const layers = [await ensureEmptyLayer(making.parts.paths)];
  // Its /etc is that of the packages, which nothing here writes through.
  await sandbox.start({ layers, usrLayers: [], network: noNetwork }, { hasOwnNames: false });
  await runScript(sandbox, configure, { what: 'Installing the packages', signal: making.signal, say: making.say });
  await sandbox.end();
}

/** Copies, because what runs inside may write to them and the cache is for others too. Made where nothing runs. */
async function putPackages(
  sandbox: BuildSandbox,
  groups: Readonly<Record<string, readonly ResolvedPackage[]>>,
): Promise<void> {
  // Refuses what is there already, a link too: nothing is written through what packages have left.
  const directory = join(sandbox.tree, packagesDirectory);
  await mkdir(directory, { mode: 0o755 });
  for (const [name, packages] of Object.entries(groups)) {
    await mkdir(join(directory, name), { mode: 0o755 });
    for (const { file, path } of packages) {
      await copyFile(path, join(directory, name, file), constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    }
  }
}

async function runScript(
  sandbox: BuildSandbox,
  script: string,
  options: { readonly what: string; readonly say: (text: string) => void; readonly signal: AbortSignal },
): Promise<void> {
  const { exitCode } = await sandbox.run({ ...root, command: ['/bin/sh', '-c', script] }, options);
  if (exitCode === 0) return;
  throw new PlatformError('build_step_failed', `${options.what} failed with ${exitCode}.`, { details: { exitCode } });
}
