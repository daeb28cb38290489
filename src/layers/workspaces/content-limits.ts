/** How much one version of a workspace may hold, and what its names may be. */
import { isGitName, nameText } from '../../base/index.ts';
import { PlatformError } from '../../protocol/index.ts';

export interface WorkspaceLimits {
  /** Files and links of one version. */
  readonly files: number;
  /** Bytes of all of them together. */
  readonly totalBytes: number;
  readonly fileBytes: number;
  /** Of a bundle, an archive or what a remote sends. */
  readonly incomingBytes: number;
  /** Commits that a checkout's own history has; older ones are left out and git there calls it shallow. */
  readonly checkoutCommits: number;
  /** Entries below the path of a checkout, those that are ignored or belong to its `.git` too. */
  readonly collectEntries: number;
  /** The longest that one git may take which works on what is here. */
  readonly gitMs: number;
  /** The same of one whose pace another sets: a sender, a reader, a remote. */
  readonly transferMs: number;
  /** What a git may take that works on what others have made. */
  readonly gitMemoryBytes: number;
}

export const defaultWorkspaceLimits: WorkspaceLimits = {
  files: 200_000,
  totalBytes: 8 * 1024 ** 3,
  fileBytes: 1024 ** 3,
  incomingBytes: 4 * 1024 ** 3,
  checkoutCommits: 1_000,
  collectEntries: 1_000_000,
  gitMs: 10 * 60_000,
  transferMs: 60 * 60_000,
  gitMemoryBytes: 4 * 1024 ** 3,
};

const pathMaxBytes = 4_000;
const partMaxBytes = 255;
const shownPaths = 10;

/** Whether a path, in bytes as latin1, leads nowhere but to a file of its own below a checkout, on every system that may check it out. */
export function isSafePath(path: string): boolean {
  if (path === '' || path.length > pathMaxBytes || path.includes('\0')) return false;
  return path.split('/').every(isSafePart);
}

function isSafePart(part: string): boolean {
  if (part === '' || part === '.' || part === '..' || part.length > partMaxBytes) return false;
  // Most names are plain; the rest of the question is for those that could be read as .git.
  if (/^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/.test(part) && !/^git~/i.test(part)) return true;
  const text = nameText(part);
  // A backslash separates on NTFS, so what is between two of them is a part too.
  return (
    !isGitName(text) && text.split('\\').every((piece) => piece !== '..' && (piece !== '' || !text.includes('\\')))
  );
}

export function unsafe(what: string, paths: readonly string[] = [], cause?: unknown): PlatformError {
  const shown = paths.slice(0, shownPaths).map((path) => JSON.stringify(nameText(path)));
  const named = shown.length === 0 ? '' : `: ${shown.join(', ')}`;
  return new PlatformError('workspace_unsafe', `The content has ${what}${named}. Nothing of it is kept.`, {
    details: { paths: paths.slice(0, 100).map(nameText) },
    ...(cause !== undefined && { cause }),
  });
}
