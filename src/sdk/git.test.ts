import { expect, test } from 'vitest';
import type { ExecOptions, ExecResult } from './exec.ts';
import { Git } from './git.ts';
import { withoutSecrets } from './git-credentials.ts';
import { failureOf, parseStatus } from './git-output.ts';

const result = (changes: Partial<ExecResult>): ExecResult =>
  ({ exitCode: 0, stdout: '', stderr: '', timedOut: false, ...changes }) as ExecResult;

function recording(answer: (words: readonly string[]) => Partial<ExecResult> = () => ({})) {
  const calls: { readonly words: readonly string[]; readonly options: ExecOptions }[] = [];
  const git = new Git(async (words, options) => {
    calls.push({ words, options });
    return result(answer(words));
  });
  return { git, calls };
}

test('a status is read record by record, whatever the names hold', () => {
  const output = [
    '# branch.oid 0123',
    '# branch.head main',
    '# branch.upstream origin/main',
    '# branch.ab +2 -1',
    '1 M. N... 100644 100644 100644 a b with space and "quote"',
    '2 R. N... 100644 100644 100644 a b R100 new\nname',
    'old name',
    'u UU N... 100644 100644 100644 100644 a b c torn',
    '? -dash',
    '',
  ].join('\0');
  expect(parseStatus(output)).toEqual({
    branch: 'main',
    commit: '0123',
    upstream: 'origin/main',
    ahead: 2,
    behind: 1,
    isClean: false,
    files: [
      { path: 'with space and "quote"', from: null, staged: 'M', unstaged: '.' },
      { path: 'new\nname', from: 'old name', staged: 'R', unstaged: '.' },
      { path: 'torn', from: null, staged: 'U', unstaged: 'U' },
      { path: '-dash', from: null, staged: '?', unstaged: '?' },
    ],
  });
});

test.each([
  ['fatal: not a git repository (or any of the parent directories): .git', 128, 'not_a_repository'],
  ["fatal: Authentication failed for 'https://x/y/'", 128, 'authentication'],
  ['fatal: could not read Username for https://x: terminal prompts disabled', 128, 'authentication'],
  [' ! [rejected]        main -> main (fetch first)', 1, 'rejected'],
  ['fatal: Not possible to fast-forward, aborting.', 128, 'conflict'],
  ['nothing to commit, working tree clean', 1, 'nothing_to_commit'],
  ["fatal: detected dubious ownership in repository at '/r'", 128, 'owned_by_another'],
  ['fatal: something new', 128, 'other'],
  ['', 127, 'not_installed'],
] as const)('%s is %i %s', (output, exitCode, expected) => {
  expect(failureOf(output, exitCode)).toBe(expected);
});

test('E130: credentials are in the environment of one command, for one server, and in no argument', async () => {
  const { git, calls } = recording();
  await git.clone('https://host.example/a/b.git', '/workspace/b', {
    credentials: { username: 'me', password: 's3cret' },
  });
  const [clone, after] = calls;
  expect(clone?.words.join(' ')).not.toContain('s3cret');
  expect(clone?.options.env).toMatchObject({
    ATOLL_GIT_PASSWORD: 's3cret',
    GIT_CONFIG_KEY_1: 'credential.https://host.example.helper',
  });
  expect(JSON.stringify(after)).not.toContain('s3cret');
  expect(clone?.words).toContain('core.hooksPath=/dev/null');
});

test('E130: an error shows no credentials, neither given ones nor those in a URL', async () => {
  const credentials = { username: 'me', password: 'p@ss/wörd' };
  const said = `fatal: https://u:hidden@h/x and p@ss/wörd and ${encodeURIComponent(credentials.password)}`;
  const { git } = recording(() => ({ exitCode: 128, stderr: said }));
  const error = await git.clone('https://h/x', '/x', { credentials }).catch((caught: Error) => caught);
  const shown = JSON.stringify(error) + String(error);
  for (const secret of ['p@ss/wörd', encodeURIComponent(credentials.password), 'hidden'])
    expect(shown).not.toContain(secret);
  expect(withoutSecrets('see http://a:b@c/d', undefined)).toBe('see http://***@c/d');
});

test('a password in a URL, an option in place of a name, and credentials for a path are refused before anything runs', async () => {
  const { git, calls } = recording();
  const refused = { code: 'invalid_request' };
  const credentials = { username: 'a', password: 'b' };
  await expect(git.clone('https://u:p@h/x', '/x')).rejects.toMatchObject(refused);
  await expect(git.clone('--upload-pack=touch /x', '/x')).rejects.toMatchObject(refused);
  await expect(git.clone('/local', '/x', { credentials })).rejects.toMatchObject(refused);
  await expect(git.clone('https://h/x', '/x', { branch: '--evil' })).rejects.toMatchObject(refused);
  await expect(
    git.clone('https://h/x', '/x', { credentials: { username: 'a', password: 'b\nhost=evil' } }),
  ).rejects.toMatchObject(refused);
  expect(calls).toEqual([]);
});
