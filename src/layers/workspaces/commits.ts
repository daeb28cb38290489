/** Commits of a workspace: read one or a history of them, and make one that is the same whenever it is made from the same. */
import { type CommitTreeOrder, PlatformError, type WorkspaceCommit } from '../../protocol/index.ts';
import type { GitProgram } from './git-program.ts';

/** Of one commit object: a message beyond this is no message. */
const commitMaxBytes = 1024 * 1024;
const objectId = /^[0-9a-f]{40}$/;

export function isObjectId(text: string): boolean {
  return objectId.test(text);
}

/** git takes many things for a name; here only an id is one. */
export function checkIds(...ids: readonly string[]): void {
  for (const id of ids) {
    if (!isObjectId(id)) {
      throw new PlatformError('invalid_request', 'An object of a workspace is named by 40 hexadecimal digits.');
    }
  }
}

/** Refuses what is not there, or is not of one of the kinds. */
export async function requireObjects(
  git: GitProgram,
  repository: string,
  wanted: readonly { readonly id: string; readonly kinds: readonly string[] }[],
): Promise<void> {
  checkIds(...wanted.map(({ id }) => id));
  const stdin = `${wanted.map(({ id }) => id).join('\n')}\n`;
  const { stdout } = await git.run(repository, ['cat-file', '--batch-check=%(objecttype)'], { stdin });
  const types = stdout.toString('utf8').split('\n');
  for (const [index, { id, kinds }] of wanted.entries()) {
    const type = types[index] ?? '';
    if (kinds.includes(type)) continue;
    const what = type.endsWith('missing') ? 'is not there' : `is a ${type}, not a ${kinds.join(' or ')}`;
    throw new PlatformError('workspace_not_found', `The object ${id} of the workspace ${what}.`, {
      details: { object: id },
    });
  }
}

/** Of a commit, or the tree itself. */
export async function treeOf(git: GitProgram, repository: string, id: string): Promise<string> {
  return await git.line(repository, ['rev-parse', '--verify', '-q', `${id}^{tree}`]);
}

export async function readCommits(
  git: GitProgram,
  repository: string,
  commit: string,
  limit: number,
): Promise<WorkspaceCommit[]> {
  await requireObjects(git, repository, [{ id: commit, kinds: ['commit'] }]);
  const words = ['rev-list', `--max-count=${limit}`, commit];
  const ids = (await git.run(repository, words)).stdout;
  const { stdout } = await git.run(repository, ['cat-file', '--batch'], { stdin: ids });
  return [...objectsOf(stdout)].map(({ id, content }) => parseCommit(id, content));
}

export async function readCommit(git: GitProgram, repository: string, commit: string): Promise<WorkspaceCommit> {
  const [found] = await readCommits(git, repository, commit, 1);
  return found!;
}

function* objectsOf(batch: Buffer): Generator<{ readonly id: string; readonly content: Buffer }, void> {
  for (let at = 0; at < batch.byteLength; ) {
    const lineEnd = batch.indexOf(10, at);
    const [id, , size] = batch.toString('latin1', at, lineEnd).split(' ') as [string, string, string];
    const begin = lineEnd + 1;
    at = begin + Number(size) + 1;
    yield { id, content: batch.subarray(begin, at - 1) };
  }
}

function parseCommit(commit: string, content: Buffer): WorkspaceCommit {
  const headEnd = content.indexOf('\n\n');
  const head = content
    .subarray(0, headEnd === -1 ? content.byteLength : headEnd)
    .toString('utf8')
    .split('\n');
  const values = (name: string) =>
    head.filter((line) => line.startsWith(`${name} `)).map((line) => line.slice(name.length + 1));
  const author = /^(?<name>.*?) ?<(?<email>[^>]*)> (?<seconds>-?\d+)/.exec(values('author')[0] ?? '')?.groups;
  return {
    commit,
    tree: values('tree')[0] ?? '',
    parents: values('parent'),
    author: { name: author?.name ?? '', email: author?.email ?? '' },
    authoredAtMs: Number(author?.seconds ?? 0) * 1_000,
    message: headEnd === -1 ? '' : content.subarray(headEnd + 2).toString('utf8'),
  };
}

/** The object itself is written, byte by byte as it is meant: no identity, encoding, clean-up or signature of git's takes part. */
export async function writeCommit(
  git: GitProgram,
  repository: string,
  order: Omit<CommitTreeOrder, 'workspaceId'>,
): Promise<string> {
  await requireObjects(git, repository, [
    { id: order.tree, kinds: ['tree'] },
    ...order.parents.map((id) => ({ id, kinds: ['commit'] })),
  ]);
  const bytes = commitBytes(order);
  if (bytes.byteLength > commitMaxBytes) {
    throw new PlatformError('payload_too_large', `A commit has at most ${commitMaxBytes} bytes.`);
  }
  return await git.line(repository, ['hash-object', '-t', 'commit', '-w', '--stdin'], { stdin: bytes });
}

export function commitBytes(order: Omit<CommitTreeOrder, 'workspaceId'>): Buffer {
  const who = `${identityText(order.author.name)} <${identityText(order.author.email)}>`;
  const when = `${Math.floor(order.atMs / 1_000)} +0000`;
  const trailers = order.trailers.map(({ name, value }) => `${trailerText(name)}: ${trailerText(value)}\n`).join('');
  const message = order.message.replaceAll('\0', '').replace(/\n*$/, '\n');
  const lines = [
    `tree ${order.tree}`,
    ...order.parents.map((parent) => `parent ${parent}`),
    `author ${who} ${when}`,
    `committer ${who} ${when}`,
  ];
  return Buffer.from(`${lines.join('\n')}\n\n${message}${trailers === '' ? '' : `\n${trailers}`}`);
}

/** What git itself takes out of a name, so that a header stays one line of its form. */
function identityText(text: string): string {
  return text.replaceAll(/[\0\n\r<>]/g, '').trim();
}

function trailerText(text: string): string {
  return text.replaceAll(/[\0\r\n]+/g, ' ').trim();
}
