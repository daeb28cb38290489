/**
 * What a sandbox wants to change in the user's directory, looked at as an attack: every name, kind and size, before one byte is written.
 * git's own strict check has seen the objects; here stands what it leaves open.
 */
import { isGitName } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import { type Checkout, stagingPrefix } from './checkout.ts';
import { nameBytes, nameText } from './git-process.ts';
import { checkLimits } from './limits.ts';
import type { SyncLimits } from './options.ts';
import { sizesOfBlobs, type TreeChange } from './trees.ts';

const fileModes = new Set(['100644', '100755', '120000']);
const nameLimitBytes = 4_000;
const linkLimitBytes = 4_095;

/** Refuses whole, with every bad path named, or answers the changes that may be made; submodules are left out. */
export async function checkHostileChanges(
  checkout: Checkout,
  changes: readonly TreeChange[],
  limits: SyncLimits,
): Promise<{ readonly changes: readonly TreeChange[]; readonly bytes: number; readonly warnings: readonly string[] }> {
  const bad = changes.filter(({ name, to }) => to !== null && isUnsafeName(name)).map(({ name }) => nameText(name));
  if (bad.length > 0) throw unsafe('paths that lead out of the checkout or into git', bad);
  const isLink = ({ from, to }: TreeChange) => from?.mode === '160000' || to?.mode === '160000';
  const links = changes.filter(isLink);
  const kept = changes.filter((change) => !isLink(change));
  const odd = kept.filter(({ to }) => to !== null && !fileModes.has(to.mode)).map(({ name }) => nameText(name));
  if (odd.length > 0) throw unsafe('entries that are neither file nor symlink', odd);
  const written = kept.flatMap(({ name, to }) => (to === null ? [] : [{ name, ...to }]));
  const sizes = await sizesOfBlobs(
    checkout,
    written.map(({ id }) => id),
  );
  const missing = written.filter(({ id }) => !sizes.has(id)).map(({ name }) => nameText(name));
  if (missing.length > 0) throw unsafe('files without content', missing);
  const longLinks = written.filter(({ mode, id }) => mode === '120000' && (sizes.get(id) ?? 0) > linkLimitBytes);
  if (longLinks.length > 0)
    throw unsafe(
      'symlinks that are too long',
      longLinks.map(({ name }) => nameText(name)),
    );
  const sized = written.map(({ name, id }) => ({ path: nameText(name), bytes: sizes.get(id) ?? 0 }));
  checkLimits(sized, limits, 'in the sandbox');
  const bytes = sized.reduce((sum, file) => sum + file.bytes, 0);
  return {
    changes: kept,
    bytes,
    warnings: links.map(({ name }) => `${nameText(name)} is a submodule and is not synced.`),
  };
}

export function isUnsafeName(name: string): boolean {
  if (name === '' || name.startsWith('/') || name.includes('\0') || nameBytes(name).length > nameLimitBytes)
    return true;
  if (name.startsWith(stagingPrefix)) return true;
  return nameText(name).split('/').some(isUnsafePart);
}

function isUnsafePart(part: string): boolean {
  return part === '' || part === '.' || part === '..' || isGitName(part);
}

function unsafe(what: string, paths: readonly string[]): PlatformError {
  const shown = paths
    .slice(0, 10)
    .map((path) => JSON.stringify(path))
    .join(', ');
  return new PlatformError('sync_unsafe', `The sandbox wants to write ${what}: ${shown}. Nothing was changed.`, {
    details: { paths: paths.slice(0, 100) },
  });
}
