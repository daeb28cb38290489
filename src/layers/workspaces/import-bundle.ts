/**
 * A git bundle. Its head is read here, line by line and bounded; the pack behind it goes to git's strict check as it comes, so that nothing of it
 * lies anywhere before it is checked.
 */
import { PlatformError } from '../../protocol/index.ts';
import { isObjectId, requireObjects } from './commits.ts';
import { unsafe, type WorkspaceLimits } from './content-limits.ts';
import { GitFailure, type GitProgram } from './git-program.ts';
import { boundedBytes } from './import-archive.ts';
import type { Staging } from './staging.ts';

const headMaxBytes = 1024 * 1024;

export interface BundleHead {
  readonly prerequisites: readonly string[];
  /** In their order. */
  readonly refs: readonly { readonly id: string; readonly name: string }[];
}

/** The commit that `ref` leads to, in the staging; its whole history is there. */
export async function importBundle(
  git: GitProgram,
  staging: Staging,
  bytes: AsyncIterable<Uint8Array>,
  options: { readonly ref: string | null; readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): Promise<string> {
  const { limits, signal } = options;
  const { head, rest } = await splitBundle(boundedBytes(bytes, limits.incomingBytes));
  const wanted = chooseRef(head.refs, options.ref);
  const missing = head.prerequisites.map((id) => ({ id, kinds: ['commit'] }));
  if (missing.length > 0) await requirePrerequisites(git, staging, missing);
  await takePack(git, staging, rest, { limits, signal });
  return await commitOf(git, staging, wanted);
}

async function requirePrerequisites(
  git: GitProgram,
  staging: Staging,
  wanted: readonly { readonly id: string; readonly kinds: readonly string[] }[],
): Promise<void> {
  await requireObjects(git, staging.path, wanted).catch((error: unknown) => {
    throw unsafe('commits that stand on others which are not here', [], error);
  });
}

/** Every object is checked on its own, and that nothing is missing between them. */
export async function takePack(
  git: GitProgram,
  staging: Staging,
  pack: AsyncIterable<Uint8Array>,
  { limits, signal }: { readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const strict = '--strict=zeroPaddedFilemode=ignore,badTimezone=ignore,missingSpaceBeforeDate=ignore';
  const words = ['index-pack', '--stdin', '--fix-thin', strict, `--max-input-size=${limits.incomingBytes}`];
  const call = { stdin: pack, signal, timeoutMs: limits.gitMs, hostileBytes: 2 * limits.incomingBytes };
  await git.run(staging.path, words, call).catch((error: unknown) => {
    if (!(error instanceof GitFailure)) throw error;
    throw unsafe(`damaged or forbidden objects (${lastLine(error.said)})`, [], error);
  });
}

/** The commit that something in the staging leads to. */
export async function commitOf(git: GitProgram, staging: Staging, id: string): Promise<string> {
  return await git.line(staging.path, ['rev-parse', '--verify', '-q', `${id}^{commit}`]).catch((error: unknown) => {
    throw error instanceof GitFailure ? unsafe('a head that is no commit', [], error) : error;
  });
}

/** Refuses a commit or tree of which something is neither in the staging nor in the workspace. */
export async function requireWhole(
  git: GitProgram,
  staging: Staging,
  object: string,
  { limits, signal }: { readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): Promise<void> {
  const call = { signal, timeoutMs: limits.gitMs };
  await git.run(staging.path, ['rev-list', '--objects', '--quiet', object], call).catch((error: unknown) => {
    throw error instanceof GitFailure ? unsafe('a history that is not whole', [], error) : error;
  });
}

async function splitBundle(
  bytes: AsyncIterable<Buffer>,
): Promise<{ readonly head: BundleHead; readonly rest: AsyncIterable<Uint8Array> }> {
  const chunks = bytes[Symbol.asyncIterator]();
  let held: Buffer = Buffer.alloc(0);
  for (;;) {
    const end = held.indexOf('\n\n');
    if (end !== -1) {
      const head = parseHead(held.toString('latin1', 0, end).split('\n'));
      const first = held.subarray(end + 2);
      return { head, rest: restOf(first, chunks) };
    }
    const next = await chunks.next();
    if (next.done === true || held.byteLength > headMaxBytes) throw unsafe('no head of a git bundle');
    held = Buffer.concat([held, next.value]);
    if (held.byteLength >= 2 && held[0] !== 0x23) throw unsafe('no head of a git bundle');
  }
}

async function* restOf(first: Buffer, chunks: AsyncIterator<Buffer>): AsyncGenerator<Uint8Array, void> {
  if (first.byteLength > 0) yield first;
  for (let next = await chunks.next(); next.done !== true; next = await chunks.next()) yield next.value;
}

function parseHead(lines: readonly string[]): BundleHead {
  const [signature, ...rest] = lines;
  if (signature !== '# v2 git bundle' && signature !== '# v3 git bundle') throw unsafe('no head of a git bundle');
  const capabilities = rest.filter((line) => line.startsWith('@'));
  const odd = capabilities.filter((line) => line !== '@object-format=sha1');
  if (odd.length > 0) throw unsafe('a bundle that is not whole or not of SHA-1', odd);
  const prerequisites: string[] = [];
  const refs: { readonly id: string; readonly name: string }[] = [];
  for (const line of rest) {
    if (line.startsWith('@')) continue;
    const text = line.startsWith('-') ? line.slice(1) : line;
    const id = text.slice(0, 40);
    if (!isObjectId(id)) throw unsafe('a damaged head of a git bundle');
    if (line.startsWith('-')) prerequisites.push(id);
    else refs.push({ id, name: text.slice(41) });
  }
  return { prerequisites, refs };
}

function chooseRef(refs: BundleHead['refs'], ref: string | null): string {
  const forms = ref === null ? ['HEAD'] : [ref, `refs/heads/${ref}`, `refs/tags/${ref}`];
  const found = forms.flatMap((form) => refs.filter(({ name }) => name === form)).at(0);
  if (found !== undefined) return found.id;
  const distinct = new Set(refs.map(({ id }) => id));
  if (ref === null && distinct.size === 1) return refs[0]!.id;
  const names = refs.map(({ name }) => name).slice(0, 100);
  const message = ref === null ? 'The bundle has several heads; say which.' : 'The bundle has no such head.';
  throw new PlatformError('invalid_request', message, { details: { refs: names } });
}

function lastLine(text: string): string {
  return (
    text
      .split('\n')
      .filter((line) => line !== '')
      .at(-1) ?? 'cut short'
  );
}
