/** A tar of a directory as a tree. Whoever made it is not trusted: one bad entry, and nothing of it is kept. */
import { PlatformError } from '../../protocol/index.ts';
import { ByteReader } from '../images/byte-reader.ts';
import { tarTypes } from '../images/tar-header.ts';
import { readTar, type TarEntry } from '../images/tar-reader.ts';
import { buildTree, oneChunk, type TreeStep } from './build-tree.ts';
import { isSafePath, unsafe, type WorkspaceLimits } from './content-limits.ts';
import { GitFailure, type GitProgram } from './git-program.ts';
import type { Staging } from './staging.ts';

const linkMaxBytes = 4_095;

/** The tree, in the staging. */
export async function importArchive(
  git: GitProgram,
  staging: Staging,
  bytes: AsyncIterable<Uint8Array>,
  options: { readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): Promise<string> {
  try {
    const steps = stepsOf(boundedBytes(bytes, options.limits.incomingBytes), options.limits);
    return await buildTree(git, staging, { base: null, steps, ...options });
  } catch (error) {
    if (error instanceof GitFailure) throw unsafe('entries that do not fit together', [], error);
    if (error instanceof PlatformError && error.code === 'image_refused') {
      throw unsafe('a damaged archive', [], error);
    }
    throw error;
  }
}

export async function* boundedBytes(
  bytes: AsyncIterable<Uint8Array>,
  limitBytes: number,
): AsyncGenerator<Buffer, void> {
  let total = 0;
  for await (const chunk of bytes) {
    total += chunk.byteLength;
    if (total > limitBytes) throw unsafe(`more than ${limitBytes} bytes`);
    yield Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  }
}

async function* stepsOf(bytes: AsyncIterable<Buffer>, limits: WorkspaceLimits): AsyncGenerator<TreeStep, void> {
  let files = 0;
  let total = 0;
  for await (const entry of readTar(new ByteReader(bytes))) {
    const path = pathOf(entry.name);
    if (path === undefined || entry.type === tarTypes.directory) continue;
    files += 1;
    total += entry.size;
    if (files > limits.files) throw unsafe(`more than ${limits.files} files`);
    if (entry.size > limits.fileBytes) throw unsafe('files or links that are too large', [path]);
    if (total > limits.totalBytes) throw unsafe(`more than ${limits.totalBytes} bytes of files`);
    yield stepOf(entry, path);
  }
}

function stepOf(entry: TarEntry, path: string): TreeStep {
  switch (entry.type) {
    case tarTypes.file:
    case tarTypes.contiguous: {
      const mode = (entry.mode & 0o100) === 0 ? '100644' : '100755';
      return { kind: 'file', path, mode, sizeBytes: entry.size, content: entry.content() };
    }
    case tarTypes.link: {
      const { target } = entry;
      if (target === '' || target.length > linkMaxBytes) throw unsafe('files or links that are too large', [path]);
      return { kind: 'file', path, mode: '120000', sizeBytes: target.length, content: oneChunk(target) };
    }
    case tarTypes.hardLink: {
      const from = pathOf(entry.target);
      if (from === undefined) throw unsafe('links to what is left out', [path]);
      return { kind: 'copy', from, path };
    }
    default:
      throw unsafe('entries that are neither file nor symlink', [path]);
  }
}

/** undefined: the directory itself, or something below a `.git`, which is left out. */
function pathOf(name: string): string | undefined {
  const path = name.replace(/^(?:\.\/+)+/, '').replace(/\/+$/, '');
  if (path === '' || path === '.') return undefined;
  if (path.split('/').includes('.git') && !path.split('/').includes('..')) return undefined;
  if (!isSafePath(path)) throw unsafe('paths that lead into git or out of a checkout', [path]);
  return path;
}
