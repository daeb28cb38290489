/** What git prints, as data. Records end with NUL, so that no name can be mistaken for two. */

export interface GitFileStatus {
  readonly path: string;
  /** Where a renamed or copied one was. */
  readonly from: string | null;
  /** As git has them: M modified, A added, D deleted, R renamed, C copied, T type, U unmerged, ? untracked, ! ignored, '.' unchanged. */
  readonly staged: string;
  readonly unstaged: string;
}

export interface GitStatus {
  /** null: detached. */
  readonly branch: string | null;
  /** null: nothing is committed yet. */
  readonly commit: string | null;
  readonly upstream: string | null;
  readonly ahead: number;
  readonly behind: number;
  readonly files: readonly GitFileStatus[];
  readonly isClean: boolean;
}

export interface GitBranch {
  readonly name: string;
  readonly commit: string;
  readonly isCurrent: boolean;
  readonly isRemote: boolean;
  readonly upstream: string | null;
}

/** Of `git status --porcelain=v2 --branch -z`. */
export function parseStatus(output: string): GitStatus {
  const head: Record<string, string> = {};
  const files: GitFileStatus[] = [];
  const records = output.split('\0');
  for (let at = 0; at < records.length; at++) {
    const record = records[at]!;
    const kind = record[0];
    if (kind === '#') {
      const [, name = '', ...rest] = record.split(' ');
      head[name] = rest.join(' ');
    } else if (kind === '?' || kind === '!') {
      files.push({ path: record.slice(2), from: null, staged: kind, unstaged: kind });
    } else if (kind === '1' || kind === 'u') {
      files.push({ ...codesOf(record), path: fieldsFrom(record, kind === '1' ? 8 : 10), from: null });
    } else if (kind === '2') {
      files.push({ ...codesOf(record), path: fieldsFrom(record, 9), from: records[++at] ?? '' });
    }
  }
  const [, ahead = '0', behind = '0'] = /^\+(\d+) -(\d+)$/.exec(head['branch.ab'] ?? '') ?? [];
  return {
    branch: valueUnless(head['branch.head'], '(detached)'),
    commit: valueUnless(head['branch.oid'], '(initial)'),
    upstream: head['branch.upstream'] ?? null,
    ahead: Number(ahead),
    behind: Number(behind),
    files,
    isClean: files.length === 0,
  };
}

export const branchFormat = '%(refname)%00%(objectname)%00%(HEAD)%00%(upstream:short)';

/** Of `git for-each-ref` with the format above, a line each; a ref has no line break in its name. */
export function parseBranches(output: string): GitBranch[] {
  const branches: GitBranch[] = [];
  for (const line of output.split('\n')) {
    const [ref = '', commit = '', head = '', upstream = ''] = line.split('\0');
    const isRemote = ref.startsWith('refs/remotes/');
    if (commit === '' || (isRemote && ref.endsWith('/HEAD'))) continue;
    const name = ref.replace(/^refs\/(heads|remotes)\//, '');
    branches.push({ name, commit, isCurrent: head === '*', isRemote, upstream: upstream === '' ? null : upstream });
  }
  return branches;
}

function codesOf(record: string): { readonly staged: string; readonly unstaged: string } {
  return { staged: record[2] ?? '.', unstaged: record[3] ?? '.' };
}

/** What is behind so many fields; it may itself hold spaces. */
function fieldsFrom(record: string, count: number): string {
  return record.split(' ').slice(count).join(' ');
}

function valueUnless(value: string | undefined, absent: string): string | null {
  return value === undefined || value === absent ? null : value;
}

export type GitFailure =
  | 'not_a_repository'
  | 'authentication'
  | 'unreachable'
  | 'not_found'
  | 'exists'
  | 'conflict'
  | 'rejected'
  | 'nothing_to_commit'
  | 'no_identity'
  | 'no_upstream'
  | 'unknown_revision'
  | 'owned_by_another'
  | 'not_installed'
  | 'other';

/** git tells its failures in English only (LC_ALL=C), so this is where they become one of a few. */
const failures: readonly (readonly [GitFailure, RegExp])[] = [
  ['not_a_repository', /not a git repository/i],
  ['owned_by_another', /dubious ownership/i],
  [
    'authentication',
    /authentication failed|could not read (username|password)|permission denied \(publickey|403 Forbidden|error: 40[13]/i,
  ],
  ['unreachable', /could not resolve host|failed to connect|connection (refused|timed out)|network is unreachable/i],
  ['exists', /already exists and is not an empty directory/i],
  ['rejected', /\[(remote )?rejected\]|failed to push some refs/i],
  ['conflict', /conflict|would be overwritten|not possible to fast-forward|divergent branches|unmerged/i],
  ['nothing_to_commit', /nothing to commit|nothing added to commit|no changes added to commit/i],
  ['no_identity', /please tell me who you are|unable to auto-detect email|empty ident name/i],
  ['no_upstream', /no upstream branch|no tracking information|no such remote|no configured push destination/i],
  [
    'unknown_revision',
    /unknown revision|bad revision|couldn't find remote ref|remote branch .* not found|did not match any/i,
  ],
  ['not_found', /repository .* (not found|does not exist)|does not appear to be a git repository/i],
];

export function failureOf(output: string, exitCode: number): GitFailure {
  if (exitCode === 127) return 'not_installed';
  return failures.find(([, pattern]) => pattern.test(output))?.[0] ?? 'other';
}
