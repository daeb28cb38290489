/**
 * git remotes that workspaces are brought from and sent to: a server on loopback, which the operator of these tests allows by name. What a team could
 * ask for beyond that, and what a server could answer, is refused.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NodeClient, NodeServer } from '../../src/node/index.ts';
import { type NodeApi, type NodeWorkspaces, newId } from '../../src/protocol/index.ts';
import { ForgedRepository } from '../support/forged-repository.ts';
import { type GitHttp, openGitHttp } from '../support/git-http.ts';
import { describeWith, requires } from '../support/requires.ts';
import { openLocalRig, type WorkspacesUnderTest, WorkspaceUser } from '../support/workspace-rig.ts';

const secret = 'p4ss-w0rd-that-nobody-may-see';
const run = promisify(execFile);
const plainEnvironment = { PATH: process.env['PATH'], HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1' };
const credentials = { username: 'ada', password: secret };

describeWith(requires.linux, requires.program('git'))('remotes of workspaces, called directly', () =>
  remotes((workspaces) => ({ workspaces, close: async () => {} })),
);

describeWith(requires.linux, requires.program('git'))('remotes of workspaces, over HTTP', () =>
  remotes(async (workspaces) => {
    const server = await NodeServer.listen({
      node: { workspaces } as NodeApi,
      token: 'x',
      host: '127.0.0.1',
      port: 0,
    });
    const client = new NodeClient({ url: server.url, token: 'x' });
    const close = async () => {
      client.close();
      await server.close();
    };
    return { workspaces: client.workspaces, close };
  }),
);

interface Reached {
  readonly workspaces: NodeWorkspaces;
  close(): Promise<void>;
}

function remotes(reach: (workspaces: NodeWorkspaces) => Reached | Promise<Reached>): void {
  let directory: string;
  let rig: WorkspacesUnderTest;
  let reached: Reached;
  let workspaces: NodeWorkspaces;
  let user: WorkspaceUser;
  let forged: ForgedRepository;
  let open: GitHttp;
  let guarded: GitHttp;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'atoll-remotes-'));
    rig = await openLocalRig({ directory, remotes: { allowedHosts: ['127.0.0.1', 'localhost'] } });
    reached = await reach(rig.workspaces);
    workspaces = reached.workspaces;
    user = await WorkspaceUser.create(workspaces);
    forged = await ForgedRepository.open();
    await forged.setBranch(forged.commit(forged.treeOf('file', 'of the remote\n')));
    open = await openGitHttp({ root: forged.path });
    guarded = await openGitHttp({ root: forged.path, credentials });
  });
  afterAll(async () => {
    await reached?.close();
    await rig?.close();
    await open?.close();
    await guarded?.close();
    await forged?.close();
  });

  const order = (url: string, more: object = {}) => ({
    ...user,
    url: `${url}/`,
    ref: null,
    credentials: null,
    ...more,
  });
  const head = (branch = 'main') =>
    forged
      .git(['rev-parse', `refs/heads/${branch}`])
      .toString()
      .trim();

  test('HEAD, a branch and a tag are fetched with their history; a ref that is not there is the remote\u2019s refusal', async () => {
    const first = head();
    const second = forged.commit(forged.treeOf('file', 'next\n'), [first]);
    await forged.setBranch(second, 'feature/x');
    forged.git(['tag', '-f', 'v1', second]);
    expect(await workspaces.importRemote(order(open.url))).toMatchObject({ commit: first });
    const found = await workspaces.importRemote(order(open.url, { ref: 'feature/x' }));
    expect(found).toMatchObject({ commit: second, parents: [first] });
    expect(await workspaces.importRemote(order(open.url, { ref: 'v1' }))).toEqual(found);
    expect(await workspaces.log({ ...user, commit: second, limit: 9 })).toHaveLength(2);
    await expect(workspaces.importRemote(order(open.url, { ref: 'absent' }))).rejects.toMatchObject({
      code: 'workspace_remote_failed',
    });
  });

  test('a branch moves only forward, and only from where it was', async () => {
    const base = await workspaces.importRemote(order(open.url));
    const next = await user.commit(base.tree, [base.commit], { message: 'pushed' });
    const push = (commit: string, ref: string | null) => workspaces.pushRemote({ ...order(open.url), ref, commit });
    await push(next.commit, 'pushed');
    expect(head('pushed')).toBe(next.commit);
    await push(next.commit, 'pushed');
    await push(next.commit, null);
    expect(head()).toBe(next.commit);
    const elsewhere = forged.commit(forged.treeOf('file', 'by somebody else\n'), [next.commit]);
    await forged.setBranch(elsewhere, 'pushed');
    const later = await user.commit(base.tree, [next.commit], { message: 'too late' });
    await expect(push(later.commit, 'pushed')).rejects.toMatchObject({ code: 'workspace_remote_moved' });
    expect(head('pushed')).toBe(elsewhere);
    const sideways = await user.commit(base.tree, [base.commit], { message: 'sideways' });
    await expect(push(sideways.commit, null)).rejects.toMatchObject({ code: 'workspace_remote_moved' });
    expect(head()).toBe(next.commit);
    await expect(push('f'.repeat(40), 'pushed')).rejects.toMatchObject({ code: 'workspace_not_found' });
  });

  test('a branch that moves between the look and the push is not overwritten', async () => {
    const base = await workspaces.importRemote(order(open.url));
    await forged.setBranch(base.commit, 'raced');
    const ours = await user.commit(base.tree, [base.commit], { message: 'ours' });
    const theirs = forged.commit(forged.treeOf('file', 'theirs\n'), [base.commit]);
    let looks = 0;
    const racing = await openGitHttp({
      root: forged.path,
      intercept: async (request) => {
        if (request.url?.includes('service=git-receive-pack')) looks++;
        if (request.url?.includes('service=git-receive-pack')) await forged.setBranch(theirs, 'raced');
        return false;
      },
    });
    try {
      const pushed = workspaces.pushRemote({ ...order(racing.url), ref: 'raced', commit: ours.commit });
      await expect(pushed).rejects.toMatchObject({ code: 'workspace_remote_moved' });
      expect(looks).toBeGreaterThan(0);
      expect(head('raced')).toBe(theirs);
    } finally {
      await racing.close();
    }
  });

  describe('credentials', () => {
    test('reach the server they are for, and stand nowhere else', async () => {
      const { commit } = await workspaces.importRemote(order(guarded.url, { credentials }));
      expect(commit).toBe(head());
      const next = await user.commit((await workspaces.getCommit({ ...user, commit })).tree, [commit], {
        message: 'p',
      });
      await workspaces.pushRemote({
        ...order(guarded.url, { credentials }),
        ref: 'with-password',
        commit: next.commit,
      });
      expect(head('with-password')).toBe(next.commit);
      expect(await filesWith(join(directory, 'workspaces'), secret)).toEqual([]);
    });

    test('are not on a command line while git runs', async () => {
      const lines: string[] = [];
      const watching = await openGitHttp({
        root: forged.path,
        credentials,
        intercept: async () => {
          lines.push(...(await commandLines()));
          return false;
        },
      });
      try {
        await workspaces.importRemote(order(watching.url, { credentials }));
        expect(lines.some((line) => line.includes('git') && line.includes(watching.url))).toBe(true);
        expect(lines.filter((line) => line.includes(secret))).toEqual([]);
      } finally {
        await watching.close();
      }
    });

    test('that are wrong or missing are the remote\u2019s refusal, in which they do not stand', async () => {
      for (const wrong of [null, { username: 'ada', password: 'wrong-secret' }]) {
        const error: unknown = await workspaces
          .importRemote(order(guarded.url, { credentials: wrong }))
          .catch((e) => e);
        expect(error).toMatchObject({ code: 'workspace_remote_failed' });
        expect(JSON.stringify([error, String(error)])).not.toContain('wrong-secret');
      }
      const inUrl = guarded.url.replace('//', `//ada:${secret}@`);
      await expect(workspaces.importRemote(order(inUrl))).rejects.toMatchObject({ code: 'invalid_request' });
    });

    test('are not given to another server that the first one names', async () => {
      const seen: (string | undefined)[] = [];
      const other = await openGitHttp({
        root: forged.path,
        intercept: (request, response) => {
          seen.push(request.headers.authorization);
          response.writeHead(401, { 'www-authenticate': 'Basic realm="git"' }).end();
          return true;
        },
      });
      const redirecting = await openGitHttp({
        root: forged.path,
        intercept: (request, response) => {
          response.writeHead(302, { location: `${other.url}${request.url}` }).end();
          return true;
        },
      });
      try {
        const asked = workspaces.importRemote(order(redirecting.url, { credentials }));
        await expect(asked).rejects.toMatchObject({ code: 'workspace_remote_failed' });
        expect(redirecting.requests.length).toBeGreaterThan(0);
        expect(seen).toEqual([]);
      } finally {
        await redirecting.close();
        await other.close();
      }
    });
  });

  test('an address that means something else to git, and a ref that does, are refused before anything is asked', async () => {
    const urls = [
      'ext::sh -c touch% /tmp/pwned',
      `file://${forged.path}`,
      forged.path,
      '--upload-pack=touch /tmp/pwned',
      'ssh://127.0.0.1/x',
      'git://127.0.0.1/x',
      'user@127.0.0.1:x',
      'http://',
      'http:///x',
      'https:127.0.0.1',
      `${open.url}/?x=y`,
      'http://127.0.0.1\n/x',
      'fd::3',
      'http::http://127.0.0.1/x',
    ];
    const before = open.requests.length;
    for (const url of urls) {
      await expect(workspaces.importRemote({ ...order(open.url), url }), url).rejects.toMatchObject({
        code: 'invalid_request',
      });
    }
    for (const ref of [
      '--upload-pack=x',
      '-x',
      'a:b',
      '+a',
      'a..b',
      'a b',
      'a*',
      '@{1}',
      'x.lock',
      '',
      'refs/heads/',
      '^a',
    ]) {
      await expect(workspaces.importRemote(order(open.url, { ref })), ref).rejects.toMatchObject({
        code: 'invalid_request',
      });
    }
    expect(open.requests.length).toBe(before);
    expect(await workspaces.importRemote(order(open.url))).toMatchObject({ commit: head() });
    // A git that is allowed to does what such an address says.
    const pwned = join(directory, 'pwned');
    const environment = { ...plainEnvironment, GIT_ALLOW_PROTOCOL: 'ext' };
    await run('git', ['ls-remote', `ext::touch ${pwned}`], { env: environment }).catch(() => {});
    await stat(pwned);
  });

  test('what only the node reaches is refused unless the operator allows it by name', async () => {
    const closed = await openLocalRig();
    try {
      const stranger = await WorkspaceUser.create(closed.workspaces);
      const port = new URL(open.url).port;
      const hosts = [
        '127.0.0.1',
        'localhost',
        '[::1]',
        '[::ffff:127.0.0.1]',
        '0.0.0.0',
        '2130706433',
        '0x7f.1',
        '169.254.169.254',
        '100.100.100.200',
        '10.0.0.1',
        '192.168.1.1',
        '[fe80::1]',
        '[fd00:ec2::254]',
      ];
      const before = open.requests.length;
      for (const host of hosts) {
        const asked = closed.workspaces.importRemote({
          ...order(open.url),
          ...stranger,
          url: `http://${host}:${port}/`,
        });
        await expect(asked, host).rejects.toMatchObject({ code: 'invalid_request' });
      }
      expect(open.requests.length).toBe(before);
    } finally {
      await closed.close();
    }
  });

  test('a host that is allowed by name is reached at the address that was judged', async () => {
    const before = open.requests.length;
    const named = open.url.replace('127.0.0.1', 'localhost');
    expect(await workspaces.importRemote(order(named))).toMatchObject({ commit: head() });
    expect(open.requests.length).toBeGreaterThan(before);
  });

  test('a server that leads elsewhere is not followed', async () => {
    const redirecting = await openGitHttp({
      root: forged.path,
      intercept: (request, response) => {
        response.writeHead(301, { location: `${open.url}${request.url}` }).end();
        return true;
      },
    });
    try {
      const before = open.requests.length;
      await expect(workspaces.importRemote(order(redirecting.url))).rejects.toMatchObject({
        code: 'workspace_remote_failed',
      });
      expect(open.requests.length).toBe(before);
      // A git that is not told otherwise follows.
      await run('git', ['ls-remote', `${redirecting.url}/`], { env: plainEnvironment });
      expect(open.requests.length).toBeGreaterThan(before);
    } finally {
      await redirecting.close();
    }
  });

  test('forbidden content of a server is refused whole, also in its history', async () => {
    await forged.setBranch(forged.commit(forged.treeOf('.GIT')), 'evil');
    const module = forged.tree([{ mode: '160000', name: 'module', id: 'a'.repeat(40) }]);
    await forged.setBranch(forged.commit(module), 'module');
    const evil = forged.git(['rev-parse', 'refs/heads/evil']).toString().trim();
    await forged.setBranch(forged.commit(forged.treeOf('fine'), [evil]), 'evil-before');
    const packs = join(directory, 'workspaces', user.workspaceId, 'objects.git/objects/pack');
    const before = await readdir(packs);
    for (const ref of ['evil', 'module', 'evil-before']) {
      await expect(workspaces.importRemote(order(open.url, { ref })), ref).rejects.toMatchObject({
        code: 'workspace_unsafe',
      });
    }
    expect(await readdir(packs)).toEqual(before);
  });

  test('a server that falls silent is given up when the caller is', async () => {
    const reachedIt = Promise.withResolvers<void>();
    const silent = await openGitHttp({
      root: forged.path,
      intercept: () => {
        reachedIt.resolve();
        return true;
      },
    });
    const over = new AbortController();
    try {
      const asked = workspaces.importRemote(order(silent.url), over.signal);
      const refused = expect(asked).rejects.toThrow();
      await reachedIt.promise;
      over.abort(new Error('enough'));
      await refused;
    } finally {
      await silent.close();
    }
  });

  test('an unknown workspace is told before a remote is asked', async () => {
    const before = open.requests.length;
    const asked = workspaces.importRemote({ ...order(open.url), workspaceId: newId('workspace') });
    await expect(asked).rejects.toMatchObject({ code: 'workspace_not_found' });
    expect(open.requests.length).toBe(before);
  });
}

async function filesWith(root: string, text: string): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(root, { withFileTypes: true, recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (entry.isFile() && (await readFile(path)).includes(text)) found.push(path);
  }
  return found;
}

async function commandLines(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
}
