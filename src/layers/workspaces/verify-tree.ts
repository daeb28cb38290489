/**
 * A tree that came from outside, looked at as an attack before anything names it. git's strict check has seen the objects one by one; here stands
 * what it leaves open: what the tree is as a whole.
 */
import { isSafePath, unsafe, type WorkspaceLimits } from './content-limits.ts';
import type { GitProgram } from './git-program.ts';

const fileModes: ReadonlySet<string> = new Set(['100644', '100755', '120000', '100664']);
const linkMaxBytes = 4_095;
const namedPaths = 100;

export interface TreeFile {
  readonly mode: string;
  readonly blob: string;
  readonly sizeBytes: number;
  /** Bytes as latin1. */
  readonly path: string;
}

/** Every file and link of a tree. A tree whose parts contain each other a thousandfold is small to send and has no end: reading stops at the limit. */
export async function* filesOf(
  git: GitProgram,
  repository: string,
  tree: string,
  limits: Pick<WorkspaceLimits, 'files' | 'gitMs'>,
  signal?: AbortSignal,
): AsyncGenerator<TreeFile, void> {
  let count = 0;
  let held: Buffer = Buffer.alloc(0);
  const call = { signal, timeoutMs: limits.gitMs };
  for await (const chunk of git.stream(repository, ['ls-tree', '-r', '-l', '-z', '--full-tree', tree], call)) {
    const bytes = held.byteLength === 0 ? chunk : Buffer.concat([held, chunk]);
    let at = 0;
    for (let end = bytes.indexOf(0, at); end !== -1; end = bytes.indexOf(0, at)) {
      count += 1;
      if (count > limits.files) throw unsafe(`more than ${limits.files} files`);
      yield parseLine(bytes.toString('latin1', at, end));
      at = end + 1;
    }
    held = bytes.subarray(at);
  }
}

function parseLine(line: string): TreeFile {
  const tab = line.indexOf('\t');
  const [mode, , blob, size] = line.slice(0, tab).split(/ +/) as [string, string, string, string];
  return { mode, blob, sizeBytes: size === '-' ? 0 : Number(size), path: line.slice(tab + 1) };
}

/** Refuses whole, naming what is wrong, or returns how much there is. */
export async function verifyTree(
  git: GitProgram,
  repository: string,
  tree: string,
  options: { readonly limits: WorkspaceLimits; readonly signal?: AbortSignal | undefined },
): Promise<{ readonly files: number; readonly bytes: number }> {
  const { limits, signal } = options;
  const bad = { paths: [] as string[], modules: [] as string[], modes: [] as string[], large: [] as string[] };
  let files = 0;
  let bytes = 0;
  for await (const file of filesOf(git, repository, tree, limits, signal)) {
    files += 1;
    bytes += file.sizeBytes;
    if (!isSafePath(file.path)) note(bad.paths, file.path);
    if (file.mode === '160000') note(bad.modules, file.path);
    else if (!fileModes.has(file.mode)) note(bad.modes, file.path);
    const isTooLong = file.mode === '120000' && file.sizeBytes > linkMaxBytes;
    if (file.sizeBytes > limits.fileBytes || isTooLong) note(bad.large, file.path);
  }
  if (bad.paths.length > 0) throw unsafe('paths that lead into git or out of a checkout', bad.paths);
  if (bad.modules.length > 0) throw unsafe('submodules, which a workspace cannot keep', bad.modules);
  if (bad.modes.length > 0) throw unsafe('entries that are neither file nor symlink', bad.modes);
  if (bad.large.length > 0) throw unsafe('files or links that are too large', bad.large);
  if (bytes > limits.totalBytes) throw unsafe(`${bytes} bytes of files; at most ${limits.totalBytes} are kept`);
  return { files, bytes };
}

function note(list: string[], path: string): void {
  if (list.length < namedPaths) list.push(path);
}
