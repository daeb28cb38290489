/**
 * Files of Git LFS. Their pointer is what git tracks and what is synced; the content stays here. A file whose content is not the one that its
 * pointer names cannot be sent, and stops the sync before anything happens. The content is hashed here: no filter of anybody's runs.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { type Checkout, refused, shadowCall, userCall } from './checkout.ts';
import { git, nameBytes, nameText, zeroSeparated } from './git-process.ts';

/** The paths among `names` whose working file stands for its pointer, which our index has already. */
export async function largeFilePointers(checkout: Checkout, names: readonly string[]): Promise<ReadonlySet<string>> {
  if (checkout.kind === 'plain' || names.length === 0) return new Set();
  const stdin = Buffer.concat(names.flatMap((name) => [nameBytes(name), Buffer.of(0)]));
  const { stdout } = await git(['check-attr', '-z', '--stdin', 'filter'], userCall(checkout, { stdin }));
  const fields = zeroSeparated(stdout);
  const large = names.filter((_, index) => fields[index * 3 + 2] === 'lfs');
  const clean = new Set<string>();
  const dirty: string[] = [];
  for (const name of large) {
    const state = await stateOf(checkout, name);
    if (state === 'content') clean.add(name);
    else if (state === 'dirty') dirty.push(nameText(name));
  }
  if (dirty.length > 0) {
    throw refused(
      `Files of Git LFS have changes that cannot be sent: ${dirty.join(', ')}. Commit or restore them (\`git restore\`) first.`,
      { paths: dirty },
    );
  }
  return clean;
}

async function stateOf(checkout: Checkout, name: string): Promise<'content' | 'pointer' | 'dirty' | 'absent'> {
  const path = Buffer.concat([Buffer.from(`${checkout.root}/`), nameBytes(name)]);
  const found = await lstat(path).catch(() => undefined);
  if (found === undefined) return 'absent';
  const entry = await git(['ls-files', '-s', '-z', '--', `:(literal)${nameText(name)}`], shadowCall(checkout));
  const id = /^\d+ ([0-9a-f]{40}) 0\t/.exec(entry.stdout.toString('latin1'))?.[1];
  if (id === undefined) return 'dirty';
  const { stdout } = await git(['cat-file', 'blob', id], shadowCall(checkout));
  const pointer = /^oid sha256:([0-9a-f]{64})\nsize (\d+)$/m.exec(stdout.toString('latin1'));
  if (found.size === stdout.length) return 'pointer';
  if (pointer === null || Number(pointer[2]) !== found.size) return 'dirty';
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex') === pointer[1] ? 'content' : 'dirty';
}
