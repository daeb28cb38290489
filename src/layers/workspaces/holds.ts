/**
 * What keeps objects from being removed: refs below refs/holds/, one for each name of control's. The whole name is one part of the ref, so that
 * `plan/a` and `plan/a/b` do not stand in each other's way.
 */
import { join } from 'node:path';
import { type FaultPoints, syncDirectory } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { GitProgram } from './git-program.ts';

const prefix = 'refs/holds/';
/** A ref is a file whose lock has five letters more. */
const encodedMaxBytes = 245;

export interface Hold {
  readonly name: string;
  readonly object: string;
}

export async function setHold(
  git: GitProgram,
  repository: string,
  { name, object }: Hold,
  faults: FaultPoints,
): Promise<void> {
  await git.run(repository, ['update-ref', '--no-deref', refOf(name), object]);
  await faults.hit('workspace-hold-before-sync');
  await syncDirectory(join(repository, 'refs'));
  await syncDirectory(join(repository, prefix));
}

/** All of them, or none where git cannot. */
export async function releaseHolds(git: GitProgram, repository: string, names: readonly string[]): Promise<void> {
  if (names.length === 0) return;
  const known = new Set((await listHolds(git, repository)).map(({ name }) => name));
  const stdin = [...new Set(names)]
    .filter((name) => known.has(name))
    .map((name) => `delete ${refOf(name)}\n`)
    .join('');
  await git.run(repository, ['update-ref', '--no-deref', '--stdin'], { stdin });
}

export async function listHolds(git: GitProgram, repository: string): Promise<Hold[]> {
  const words = ['for-each-ref', '--format=%(objectname) %(refname)', prefix];
  const text = (await git.run(repository, words)).stdout.toString('utf8');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => ({ object: line.slice(0, 40), name: decodeURIComponent(line.slice(41 + prefix.length)) }));
}

function refOf(name: string): string {
  const encoded = Buffer.from(name)
    .toString('latin1')
    .replaceAll(/[^A-Za-z0-9_-]/g, (character) => `%${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
  if (encoded === '' || encoded.length > encodedMaxBytes) {
    throw new PlatformError('invalid_request', 'A hold has a name of 1 to 245 characters.');
  }
  return prefix + encoded;
}
