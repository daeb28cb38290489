/**
 * A bare repository of the platform: made here file by file, so that no template of the machine takes part, and configured so that content
 * never changes what git does.
 */
import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory, writeFileDurably } from '../../base/index.ts';

/** In every repository; whoever changes it lets new repositories differ from old ones, so the node writes it anew when it opens one. */
const config = `[core]
	repositoryFormatVersion = 0
	bare = true
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	protectHFS = true
	protectNTFS = true
	autocrlf = false
	safecrlf = false
	eol = lf
	quotePath = false
	logAllRefUpdates = false
	hooksPath = /dev/null
	fsmonitor = false
	attributesFile = /dev/null
	excludesFile = /dev/null
	useReplaceRefs = false
	bigFileThreshold = 16m
	fsync = all
	fsyncMethod = fsync
[pack]
	threads = 1
	windowMemory = 128m
	writeReverseIndex = false
[gc]
	auto = 0
[maintenance]
	auto = false
[transfer]
	fsckObjects = true
	unpackLimit = 1
[fetch]
	fsckObjects = true
	unpackLimit = 1
	recurseSubmodules = false
	writeCommitGraph = false
[fetch "fsck"]
	zeroPaddedFilemode = ignore
	badTimezone = ignore
	missingSpaceBeforeDate = ignore
[fsck]
	zeroPaddedFilemode = ignore
	badTimezone = ignore
	missingSpaceBeforeDate = ignore
[fastimport]
	unpackLimit = 1
[protocol]
	allow = never
[credential]
	helper =
[http]
	followRedirects = false
	emptyAuth = false
[submodule]
	recurse = false
[commit]
	gpgSign = false
[i18n]
	commitEncoding = UTF-8
	logOutputEncoding = UTF-8
[diff]
	renames = true
	renameLimit = 1000
[merge]
	renames = true
	renameLimit = 1000
	directoryRenames = true
[tar]
	umask = 0022
`;

/** It has the last word on attributes: whatever a .gitattributes of the content says is taken back, for every path. */
const attributes =
  '* !text !eol !crlf !ident !filter !working-tree-encoding !merge !diff !conflict-marker-size !whitespace !encoding !export-ignore !export-subst !delta\n';

/** Made whole and synced, except for its own name, which is its maker's to sync. */
export async function makeRepository(
  directory: string,
  options: { readonly alternate?: string; readonly durable: boolean },
): Promise<void> {
  const parts = ['', 'objects', 'objects/info', 'objects/pack', 'refs', 'refs/heads', 'info'];
  for (const part of parts) await mkdir(join(directory, part), { mode: 0o700 });
  const files: (readonly [path: string, content: string])[] = [
    ['config', config],
    ['HEAD', 'ref: refs/heads/main\n'],
    ['info/attributes', attributes],
  ];
  if (options.alternate !== undefined) files.push(['objects/info/alternates', `${options.alternate}\n`]);
  for (const [path, content] of files) {
    if (options.durable) await writeFileDurably(join(directory, path), content);
    else await writeFile(join(directory, path), content, { mode: 0o600 });
  }
  if (options.durable) for (const part of parts.toReversed()) await syncDirectory(join(directory, part));
}

/** Takes over a repository that only a process which is gone has used: with the configuration of now, and without what git leaves when it is killed. */
export async function takeOverRepository(directory: string): Promise<void> {
  await removeLocks(directory);
  await removeHalfPacks(join(directory, 'objects/pack'));
  await writeFileDurably(join(directory, 'config'), config);
  await writeFileDurably(join(directory, 'info/attributes'), attributes);
}

/** Only where no git of ours can be changing refs. */
export async function removeLocks(directory: string): Promise<void> {
  const isLock = (name: string) => name.endsWith('.lock');
  for (const name of (await readdir(directory)).filter(isLock)) await rm(join(directory, name));
  const refs = join(directory, 'refs');
  const below = await readdir(refs, { recursive: true });
  for (const name of below.filter(isLock)) await rm(join(refs, name), { force: true });
}

/** A pack is one only with its index. */
async function removeHalfPacks(directory: string): Promise<void> {
  const names = new Set(await readdir(directory));
  for (const name of names) {
    const isHalf = name.endsWith('.pack') && !names.has(name.replace(/pack$/, 'idx'));
    if (isHalf || name.startsWith('tmp_') || name.startsWith('.tmp-')) await rm(join(directory, name), { force: true });
  }
}
