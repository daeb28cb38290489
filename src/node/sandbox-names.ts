/**
 * The files of /etc that hold a sandbox's own name.
 *
 * In a writable layer that nobody has used yet the node writes them itself. One that was made from a checkpoint holds what a sandbox has
 * left there, where `/etc` may be a link to anywhere: there a file worker writes them, a process of the new sandbox, which reaches nothing
 * else.
 */
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type InitClient, writeFile as writeFileInside } from '../execution/index.ts';
import type { SandboxId } from '../protocol/index.ts';
import { resolverFile } from './sandbox-files.ts';

/** Files that have content only when the name is known. */
const ownFiles = ['hostname', 'hosts'] as const;

/** Of a writable layer that is new. */
export async function prepareNames(writable: string): Promise<void> {
  const etc = join(writable, 'upper', 'etc');
  await mkdir(etc, { mode: 0o755 });
  await Promise.all(ownFiles.map((name) => writeFile(join(etc, name), '', { mode: 0o644 })));
  await symlink(`/run/atoll/${resolverFile}`, join(etc, 'resolv.conf'));
}

/** Of a writable layer that `prepareNames` has prepared and nobody has used. */
export async function writeNames(writable: string, sandboxId: SandboxId): Promise<void> {
  const etc = join(writable, 'upper', 'etc');
  const texts = textsFor(sandboxId);
  await Promise.all(ownFiles.map((name) => writeFile(join(etc, name), texts[name])));
}

/** Before the first command. What a sandbox has made of its /etc may not let them in; then it keeps what it has. */
export async function writeNamesInside(client: InitClient, sandboxId: SandboxId, token: number): Promise<void> {
  const context = { workers: client.files, user: null, token };
  const texts = textsFor(sandboxId);
  for (const name of ownFiles) {
    const how = { how: 'replace', mode: null, owner: null, parents: false, expected: { kind: 'any' } } as const;
    await writeFileInside(context, { path: `/etc/${name}`, ...how }, only(texts[name]));
  }
}

function textsFor(sandboxId: SandboxId): Readonly<Record<(typeof ownFiles)[number], string>> {
  return {
    hostname: `${sandboxId}\n`,
    hosts: `127.0.0.1 localhost\n127.0.1.1 ${sandboxId}\n::1 localhost ip6-localhost ip6-loopback\n`,
  };
}

async function* only(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}
