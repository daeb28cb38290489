/** What the home of workspaces does, whoever keeps it. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type NodeWorkspaces, newId, type WorkspaceConflict } from '../../src/protocol/index.ts';
import { buildTar } from '../support/tar-builder.ts';
import {
  oneOf,
  type TestCheckout,
  testAtMs,
  testAuthor,
  type WorkspacesUnderTest,
  WorkspaceUser,
  wholeOf,
} from '../support/workspace-rig.ts';

const files = {
  'README.md': 'one\ntwo\nthree\nfour\nfive\nsix\nseven\n',
  'src/a.txt': 'a\n',
  'src/deep/b.txt': 'b\n',
};
const unknown = 'f'.repeat(40);
const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';

/** What a node under test is opened with, to have a shallow checkout soon. */
export const checkoutCommits = 4;

export function nodeWorkspacesContract(open: () => Promise<WorkspacesUnderTest>): void {
  let rig: WorkspacesUnderTest;
  let workspaces: NodeWorkspaces;
  let user: WorkspaceUser;

  beforeAll(async () => {
    rig = await open();
    workspaces = rig.workspaces;
    user = await WorkspaceUser.create(workspaces);
  });
  afterAll(() => rig?.close());

  /** A commit on `parent` with the files that a script leaves in a checkout of it. */
  async function changed(parent: string, script: string, checkout?: TestCheckout) {
    const place = checkout ?? (await rig.newCheckout());
    if (checkout === undefined) await user.attach(place, parent);
    await place.shell(script);
    const { tree } = await user.collect(place, parent);
    return await user.commit(tree, [parent]);
  }

  test('is made once however often it is ordered, listed, and removed with everything', async () => {
    const other = await WorkspaceUser.create(workspaces);
    const first = await other.importFiles(files);
    await workspaces.create(other);
    expect(await workspaces.getCommit({ ...other, commit: first.commit })).toEqual(first);
    expect(await workspaces.list()).toEqual(expect.arrayContaining([user.workspaceId, other.workspaceId]));
    await workspaces.remove(other);
    await workspaces.remove(other);
    expect(await workspaces.list()).not.toContain(other.workspaceId);
    await expect(other.export(first.commit, 'archive')).rejects.toMatchObject({ code: 'workspace_not_found' });
    await expect(workspaces.holds({ workspaceId: newId('workspace') })).rejects.toMatchObject({
      code: 'workspace_not_found',
    });
  });

  test('an archive is one commit without parents, the same from the same; a `.git` in it is left out', async () => {
    const items = [
      { name: './', type: '5' },
      { name: './run.sh', content: '#!/bin/sh\n', mode: 0o755 },
      { name: './link', type: '2', target: '../elsewhere' },
      { name: './hard', type: '1', target: './run.sh' },
      { name: './empty/', type: '5' },
      { name: './.git/config', content: '[core]\n\tpager = evil\n' },
      { name: './sub/.git/HEAD', content: 'x' },
      { name: './sub/file', content: 'kept' },
      { name: 'caf\u00e9 "x"\n', content: 'odd' },
    ];
    const first = await user.importArchive(items);
    expect(first).toMatchObject({ parents: [], author: testAuthor, authoredAtMs: testAtMs, message: 'import\n' });
    expect(await user.importArchive(items)).toEqual(first);
    const { files: all, counts } = await user.diff(emptyTree, first.commit);
    expect(all.map(({ path, modeAfter }) => [path, modeAfter])).toEqual([
      ['caf\u00e9 "x"\n', '100644'],
      ['hard', '100755'],
      ['link', '120000'],
      ['run.sh', '100755'],
      ['sub/file', '100644'],
    ]);
    expect(counts.files).toBe(5);
  });

  test('a bundle carries the history to another workspace, whole or since a commit', async () => {
    const first = await user.importFiles(files);
    const second = await changed(first.commit, 'echo more >> README.md');
    const other = await WorkspaceUser.create(workspaces);
    const whole = await user.export(second.commit, 'bundle');
    expect(await other.importBundle(whole)).toEqual(second);
    expect(await other.importBundle(whole, 'main')).toEqual(second);
    expect(await workspaces.log({ ...other, commit: second.commit, limit: 10 })).toEqual([second, first]);
    const third = await changed(second.commit, 'rm src/a.txt');
    const since = await user.export(third.commit, 'bundle', [second.commit]);
    expect(since.toString('latin1')).toContain(`\n-${second.commit}`);
    expect(await other.importBundle(since)).toEqual(third);
    const stranger = await WorkspaceUser.create(workspaces);
    await expect(stranger.importBundle(since)).rejects.toMatchObject({ code: 'workspace_unsafe' });
    await expect(other.importBundle(whole, 'nobody')).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test('a checkout is one in which git works: clean, with its history, and without anything of ours', async () => {
    const first = await user.importFiles(files);
    const second = await changed(first.commit, 'chmod +x src/a.txt; ln -s src/a.txt link');
    const checkout = await rig.newCheckout();
    await user.attach(checkout, second.commit);
    expect(await checkout.shell('git status --porcelain=v2 --branch')).toBe(
      `# branch.oid ${second.commit}\n# branch.head main\n`,
    );
    // Nothing is looked into, because the index knows size and time: a diff that trusts them alone finds nothing either.
    expect(await checkout.shell('git diff-files --name-only; git fsck --strict 2>&1; git rev-list HEAD')).toBe(
      `${second.commit}\n${first.commit}\n`,
    );
    expect(await checkout.shell('readlink link; stat -c %a src/a.txt; git remote; git config --list --local')).toBe(
      'src/a.txt\n755\ncore.repositoryformatversion=0\ncore.filemode=true\ncore.bare=false\ncore.logallrefupdates=true\ncore.trustctime=false\ncore.checkstat=minimal\n',
    );
    await checkout.shell(
      'echo new > new; git add new; git commit -qm mine; git status --porcelain | grep -c . && exit 1 || true',
    );
    const { tree, counts } = await user.collect(checkout, second.commit);
    expect(counts).toEqual({ files: 1, insertions: 1, deletions: 0 });
    expect(tree).toBe((await checkout.shell('git rev-parse HEAD^{tree}')).trim());
  });

  test('a checkout is shallow beyond its bound, and git there knows', async () => {
    let commit = await user.importFiles(files);
    for (let count = 0; count < 5; count++)
      commit = await user.commit(commit.tree, [commit.commit], { message: `${count}` });
    const checkout = await rig.newCheckout();
    await user.attach(checkout, commit.commit);
    const said = await checkout.shell(
      'git rev-list --count HEAD; git rev-parse --is-shallow-repository; git fsck 2>&1',
    );
    expect(said).toBe(`${checkoutCommits}\ntrue\n`);
  });

  test('a difference is told in numbers, by file, and as a patch that git applies', async () => {
    const first = await user.importArchive([
      ...Object.entries(files).map(([name, content]) => ({ name, content })),
      { name: 'binary', content: Buffer.from([0, 1, 2, 255]) },
      { name: 'gone', content: 'gone\n' },
      { name: 'was', content: 'x\n'.repeat(100) },
      { name: 'becomes-link', content: 'target' },
    ]);
    const second = await changed(
      first.commit,
      `printf '\\0\\1\\2' > binary; rm gone; mv was is; echo y >> is; echo 8 >> README.md; ln -sf target becomes-link;
       printf bad > $'not-utf8-\\xff'; chmod +x src/a.txt`,
    );
    const { files: all, counts, hasMore } = await user.diff(first.commit, second.commit);
    expect(hasMore).toBe(false);
    expect(all.map(({ path, kind }) => [path, kind])).toEqual([
      ['README.md', 'modified'],
      ['becomes-link', 'typeChanged'],
      ['binary', 'modified'],
      ['gone', 'deleted'],
      ['is', 'renamed'],
      ['not-utf8-\ufffd', 'added'],
      ['src/a.txt', 'modified'],
    ]);
    expect(all.find(({ path }) => path === 'is')).toMatchObject({ from: 'was', insertions: 1, deletions: 0 });
    expect(all.find(({ path }) => path === 'binary')).toMatchObject({ insertions: null, deletions: null });
    expect(all.find(({ kind }) => kind === 'added')).toMatchObject({
      pathBase64: Buffer.from('not-utf8-\xff', 'latin1').toString('base64'),
      modeBefore: null,
    });
    expect(counts.files).toBe(7);
    expect(await user.diff(first.commit, second.commit, 2)).toMatchObject({
      counts,
      hasMore: true,
      files: all.slice(0, 2),
    });
    const checkout = await rig.newCheckout();
    await user.attach(checkout, first.commit);
    const patch = await wholeOf(await workspaces.patch({ ...user, from: first.commit, to: second.commit }));
    await checkout.fill(buildTar([{ name: 'the-patch', content: patch }]));
    await checkout.shell('git apply the-patch; rm the-patch');
    expect((await user.collect(checkout, first.commit)).tree).toBe(second.tree);
  });

  test('changes of both sides that fit together are merged; nothing of it is visible', async () => {
    const base = await user.importFiles(files);
    const ours = await changed(base.commit, 'sed -i 1s/one/ONE/ README.md; echo o > ours');
    const theirs = await changed(
      base.commit,
      'sed -i 7s/seven/SEVEN/ README.md; git mv src/a.txt moved; rm -r src/deep',
    );
    const before = await workspaces.holds(user);
    const merged = await user.merge(base.commit, ours.commit, theirs.commit);
    if (merged.kind !== 'merged') throw new Error(JSON.stringify(merged));
    expect(merged.counts).toEqual({ files: 3, insertions: 1, deletions: 2 });
    expect(await user.merge(base.tree, ours.tree, theirs.tree)).toEqual(merged);
    const commit = await user.commit(merged.tree, [ours.commit, theirs.commit]);
    expect(await user.read(commit.commit, 'README.md')).toBe('ONE\ntwo\nthree\nfour\nfive\nsix\nSEVEN\n');
    expect(await workspaces.holds(user)).toEqual(before);
    expect(await user.merge(base.commit, base.commit, theirs.commit)).toMatchObject({ tree: theirs.tree });
    expect(await user.merge(base.commit, ours.commit, base.commit)).toMatchObject({
      tree: ours.tree,
      counts: { files: 0 },
    });
  });

  test('every conflict is told with its kind and what each side has', async () => {
    const base = await user.importArchive([
      { name: 'content', content: 'same\n' },
      { name: 'modify-delete', content: 'x\n' },
      { name: 'to-type', content: 'plain\n' },
      { name: 'binary', content: Buffer.from([0, 1, 2]) },
      { name: 'rename', content: 'r\n'.repeat(50) },
    ]);
    const ours = await changed(
      base.commit,
      `echo ours > content; rm modify-delete; echo ours > added; printf '\\0\\5' > binary; git mv rename here;
       rm to-type; ln -s ours to-type`,
    );
    const theirs = await changed(
      base.commit,
      `echo theirs > content; echo theirs > modify-delete; echo theirs > added; printf '\\0\\6' > binary; git mv rename there;
       echo more >> to-type`,
    );
    const outcome = await user.merge(base.commit, ours.commit, theirs.commit);
    if (outcome.kind !== 'conflicts') throw new Error('They fit together.');
    const kinds = new Map<string, WorkspaceConflict['kind']>(outcome.conflicts.map(({ path, kind }) => [path, kind]));
    expect(kinds.get('content')).toBe('content');
    expect(kinds.get('modify-delete')).toBe('modifyDelete');
    expect(kinds.get('added')).toBe('addAdd');
    expect(kinds.get('binary')).toBe('binary');
    expect([...kinds].filter(([path]) => /^(?:rename|here|there)$/.test(path)).map(([, kind]) => kind)).toContain(
      'rename',
    );
    expect([...kinds].filter(([path]) => path.startsWith('to-type')).map(([, kind]) => kind)).toContain('type');
    const content = outcome.conflicts.find(({ path }) => path === 'content')!;
    expect(content).toMatchObject({ base: { sizeBytes: 5 }, ours: { sizeBytes: 5 }, theirs: { sizeBytes: 7 } });
    const blob = await wholeOf(await workspaces.readBlob({ ...user, blob: content.theirs!.blob }));
    expect(blob.toString()).toBe('theirs\n');
    expect(outcome.conflicts.find(({ path }) => path === 'modify-delete')).toMatchObject({ ours: null });
  });

  test('a commit is the same from the same, with trailers below its message', async () => {
    const base = await user.importFiles(files);
    const trailers = [
      { name: 'Atoll-Sandbox', value: 'sbx1' },
      { name: 'Atoll-Plan', value: 'pln1\nInjected: yes' },
    ];
    const order = { message: 'Title\n\nBody\n\n\n', trailers, author: { name: 'Eve <x>\n', email: 'e\n@x' } };
    const commit = await user.commit(base.tree, [base.commit], order);
    expect(commit.message).toBe('Title\n\nBody\n\nAtoll-Sandbox: sbx1\nAtoll-Plan: pln1 Injected: yes\n');
    expect(commit.author).toEqual({ name: 'Eve x', email: 'e@x' });
    expect(await user.commit(base.tree, [base.commit], order)).toEqual(commit);
    await expect(user.commit(unknown, [])).rejects.toMatchObject({ code: 'workspace_not_found' });
    await expect(user.commit(base.commit, [])).rejects.toMatchObject({ code: 'workspace_not_found' });
    await expect(workspaces.getCommit({ ...user, commit: '--all' })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test('what is collected is what is there: new, changed and removed files, modes and links, and no empty directory', async () => {
    const base = await user.importArchive([
      { name: '.gitignore', content: 'build/\n*.log\n!keep.log\n' },
      { name: 'tracked.log', content: 'tracked though ignored\n' },
      { name: 'dir/file', content: 'in a directory' },
      { name: 'file-to-dir', content: 'a file' },
      { name: 'exec', content: '#!/bin/sh\n', mode: 0o755 },
    ]);
    const checkout = await rig.newCheckout();
    await user.attach(checkout, base.commit);
    expect(await user.collect(checkout, base.commit)).toEqual({
      tree: base.tree,
      counts: { files: 0, insertions: 0, deletions: 0 },
      leftOut: [],
    });
    await checkout.shell(`
      mkdir build empty deep; echo o > build/object; echo l > some.log; echo k > keep.log; echo more >> tracked.log
      rm -r dir; echo f > dir; rm file-to-dir; mkdir file-to-dir; echo in > file-to-dir/in; chmod -x exec
      mkfifo pipe; ln -s /etc/passwd link; ln -s / rootlink; printf x > $'odd \\xff\\n"name'; : > zero
      git init -q deep/nested; echo n > deep/nested/n; printf ':magic' > ':(glob)*'`);
    const { tree, counts, leftOut } = await user.collect(checkout, base.commit);
    const commit = await user.commit(tree, [base.commit]);
    const { files: all } = await user.diff(base.commit, commit.commit);
    const told = all.map(({ path, kind, modeAfter }) => [path, kind, modeAfter]);
    expect(told).toEqual(
      expect.arrayContaining([
        ['dir', 'added', '100644'],
        ['dir/file', 'deleted', null],
        ['exec', 'modified', '100644'],
        ['file-to-dir/in', 'added', '100644'],
        ['keep.log', 'added', '100644'],
        ['link', 'added', '120000'],
        ['rootlink', 'added', '120000'],
        ['tracked.log', 'modified', '100644'],
        ['zero', 'added', '100644'],
        [':(glob)*', 'added', '100644'],
        ['odd \ufffd\n"name', 'added', '100644'],
      ]),
    );
    expect(told.map(([path]) => path)).not.toEqual(expect.arrayContaining(['some.log']));
    expect(all.some(({ path }) => /^(?:build|empty|deep|pipe)/.test(path))).toBe(false);
    expect(counts.files).toBe(all.length);
    expect([...leftOut].sort()).toEqual(['deep/nested', 'pipe']);
  });

  test('C13: a checkout that has disappeared, and a base that is not there, are errors and nothing is taken', async () => {
    const base = await user.importFiles(files);
    const checkout = await rig.newCheckout();
    await user.attach(checkout, base.commit);
    const gone = { ...checkout, path: `${checkout.path}/nothing` };
    await expect(user.collect(gone, base.commit)).rejects.toMatchObject({ code: 'file_not_found' });
    await expect(user.collect(checkout, unknown)).rejects.toMatchObject({ code: 'workspace_not_found' });
  });

  test('with a baseline the answer is the same as without, also when it is of another base or forgotten', async () => {
    const base = await user.importFiles(files);
    const other = await user.importFiles({ ...files, another: 'x' });
    const checkout = await rig.newCheckout();
    await user.attach(checkout, base.commit);
    await user.recordBaseline(checkout, base.commit, 'baseline/1');
    // The same size and the same time of change of content; only the kernel's own time differs.
    await checkout.shell('touch -r src/a.txt stamp; printf "z\\n" > src/a.txt; touch -r stamp src/a.txt; rm stamp');
    const plain = await user.collect(checkout, base.commit);
    expect(plain.counts).toEqual({ files: 1, insertions: 1, deletions: 1 });
    expect(await user.collect(checkout, base.commit, 'baseline/1')).toEqual(plain);
    expect((await user.collect(checkout, other.commit, 'baseline/1')).tree).toBe(plain.tree);
    await workspaces.forgetBaseline({ ...user, baseline: 'baseline/1' });
    await workspaces.forgetBaseline({ ...user, baseline: 'baseline/1' });
    expect(await user.collect(checkout, base.commit, 'baseline/1')).toEqual(plain);
  });

  test('C29: what is held stays whatever is tidied, and what is released goes, once it is old', async () => {
    const own = await WorkspaceUser.create(workspaces);
    const held = await own.importFiles({ a: 'held\n' });
    const plan = await own.importFiles({ a: 'of a plan\n' });
    const loose = await own.importFiles({ a: 'nobody holds this\n' });
    await workspaces.hold({ ...own, name: 'version/1', object: held.commit });
    await workspaces.hold({ ...own, name: 'version/1', object: held.commit });
    await workspaces.hold({ ...own, name: 'plan/pln1', object: plan.tree });
    await workspaces.hold({ ...own, name: 'plan/pln1/mbr..1.lock', object: plan.commit });
    const get = (commit: string) => workspaces.getCommit({ ...own, commit });
    await workspaces.tidy({ ...own, olderThanMs: 3_600_000 });
    expect(await get(loose.commit)).toEqual(loose);
    await workspaces.tidy({ ...own, olderThanMs: 0 });
    await expect(get(loose.commit)).rejects.toMatchObject({ code: 'workspace_not_found' });
    expect(await get(held.commit)).toEqual(held);
    expect(await own.read(plan.commit, 'a')).toBe('of a plan\n');
    expect((await workspaces.holds(own)).map(({ name }) => name).sort()).toEqual([
      'plan/pln1',
      'plan/pln1/mbr..1.lock',
      'version/1',
    ]);
    await workspaces.release({ ...own, names: ['plan/pln1', 'plan/pln1/mbr..1.lock', 'never'] });
    await workspaces.release({ ...own, names: ['plan/pln1'] });
    await workspaces.tidy({ ...own, olderThanMs: 0 });
    await expect(get(plan.commit)).rejects.toMatchObject({ code: 'workspace_not_found' });
    expect(await get(held.commit)).toEqual(held);
    await expect(workspaces.hold({ ...own, name: 'version/2', object: plan.commit })).rejects.toMatchObject({
      code: 'workspace_not_found',
    });
  });

  test('C29: what an answer has just named is kept though the objects are old and nothing holds them', async () => {
    const own = await WorkspaceUser.create(workspaces);
    const items = [{ name: 'a', content: 'again\n' }];
    const first = await own.importArchive(items);
    await workspaces.hold({ ...own, name: 'version/1', object: first.commit });
    await workspaces.tidy({ ...own, olderThanMs: 0 });
    await workspaces.release({ ...own, names: ['version/1'] });
    const again = await own.commit(first.tree, [], { message: 'import' });
    expect(again.commit).toBe(first.commit);
    await workspaces.tidy({ ...own, olderThanMs: 3_600_000 });
    expect(await own.read(first.commit, 'a')).toBe('again\n');
  });

  test('bytes that fail midway leave nothing, and an import can be broken off', async () => {
    const tar = buildTar([{ name: 'a', content: 'x'.repeat(100_000) }]);
    const order = { workspaceId: user.workspaceId, source: { kind: 'archive' } as const, author: testAuthor };
    const failing = async function* () {
      yield tar.subarray(0, 50_000);
      throw new Error('The sender is gone.');
    };
    const about = { ...order, message: '', atMs: testAtMs };
    await expect(workspaces.importBytes(about, failing())).rejects.toThrow('The sender is gone.');
    const over = new AbortController();
    const stalling = async function* () {
      yield tar.subarray(0, 50_000);
      over.abort(new Error('No longer wanted.'));
      await new Promise(() => {});
    };
    await expect(workspaces.importBytes(about, stalling(), over.signal)).rejects.toThrow();
    expect((await workspaces.importBytes(about, oneOf(tar))).parents).toEqual([]);
  });
}
