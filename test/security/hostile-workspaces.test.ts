/**
 * Content made to get out of a checkout, into git, or to fill the node, and what a git could be made to do by content or surroundings. Each attack is
 * refused whole, with nothing kept; what is just within the rules is taken, so that a refusal is of the attack and not of the way it is made.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ScriptedFaults } from '../../src/base/index.ts';
import type { NodeWorkspaces } from '../../src/protocol/index.ts';
import { type ForgedEntry, ForgedRepository } from '../support/forged-repository.ts';
import { describeWith, requires } from '../support/requires.ts';
import { buildTar, type TarItem } from '../support/tar-builder.ts';
import { openLocalRig, type WorkspacesUnderTest, WorkspaceUser } from '../support/workspace-rig.ts';

const run = promisify(execFile);
const file: TarItem = { name: 'file', content: 'content' };
const limits = { files: 500, totalBytes: 4_000_000, fileBytes: 1_000_000, incomingBytes: 3_000_000 };

const forbiddenNames: Readonly<Record<string, string>> = {
  'git in capitals': '.GIT/config',
  'git in mixed case, deep inside': 'a/b/.Git/hooks/post-checkout',
  'git with a character that HFS+ ignores': '.g\u200cit/config',
  'git with a mark that HFS+ ignores': '\ufeff.git/config',
  'git as NTFS shortens it': 'GIT~1/config',
  'git with a dot behind it': '.git./config',
  'git with a space behind it': '.git /config',
  'git with a stream behind it': '.git::$INDEX_ALLOCATION/config',
  'git behind a backslash': 'a\\.git\\config',
  'a part that leads upward': 'a/../../x',
  'a part that is a dot': 'a/./x',
  'an absolute path': '/etc/passwd',
  'an empty part': 'a//b',
  'a part of more than 255 bytes': `${'x'.repeat(256)}`,
  'a path of more than 4,000 bytes': `${'x'.repeat(200)}/`.repeat(20).concat('x'),
};
/** Just within: they only look like it. */
const allowedNames = [
  '.gitignore',
  '.gitmodules-not',
  'git~2',
  '.git-x',
  'a.git/config',
  '...',
  'x '.concat('y'),
  '\u200cgit',
];

describeWith(requires.linux, requires.program('git'))('hostile content', () => {
  let rig: WorkspacesUnderTest;
  let workspaces: NodeWorkspaces;
  let user: WorkspaceUser;
  let forged: ForgedRepository;
  let directory: string;
  const faults = new ScriptedFaults();

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'atoll-hostile-'));
    rig = await openLocalRig({ directory, limits, faults });
    workspaces = rig.workspaces;
    user = await WorkspaceUser.create(workspaces);
    forged = await ForgedRepository.open();
  });
  afterAll(async () => {
    await rig?.close();
    await forged?.close();
  });

  const home = () => join(directory, 'workspaces', user.workspaceId);
  const kept = async () => ({
    packs: await readdir(join(home(), 'objects.git/objects/pack')),
    staging: await readdir(join(home(), 'staging')),
  });

  async function refused(attack: () => Promise<unknown>, code = 'workspace_unsafe'): Promise<void> {
    const before = await kept();
    await expect(attack()).rejects.toMatchObject({ code });
    expect(await kept()).toEqual({ ...before, staging: [] });
  }

  describe('in an archive', () => {
    for (const [what, name] of Object.entries(forbiddenNames)) {
      test(`${what} is refused, and nothing is kept`, () =>
        refused(() => user.importArchive([file, { name: 'x', content: 'x', pax: { path: name } }])));
    }

    test('names that only look like it are taken', async () => {
      const items = allowedNames.map((name) => ({ name: 'x', content: name, pax: { path: name } }));
      const { commit } = await user.importArchive(items);
      const { files } = await user.diff('4b825dc642cb6eb9a060e54bf8d69288fbee4904', commit);
      expect(files.map(({ path }) => path).sort()).toEqual([...allowedNames].sort());
    });

    const attacks: Readonly<Record<string, readonly TarItem[]>> = {
      'a device': [file, { name: 'null', type: '3' }],
      'a FIFO': [file, { name: 'pipe', type: '6' }],
      'a hard link out of it': [file, { name: 'h', type: '1', target: '../../etc/passwd' }],
      'a hard link to an absolute path': [file, { name: 'h', type: '1', target: '/etc/passwd' }],
      'a hard link to what is not there': [file, { name: 'h', type: '1', target: 'absent' }],
      'a hard link into git': [
        { name: '.git/config', content: 'x' },
        { name: 'h', type: '1', target: '.git/config' },
      ],
      'a link without a target': [file, { name: 'l', type: '2', target: '' }],
      'too many files': Array.from({ length: 501 }, (_, index) => ({ name: `f${index}`, content: '' })),
      'too large a file': [{ name: 'f', content: Buffer.alloc(1_000_001) }],
      'too much in all': Array.from({ length: 5 }, (_, index) => ({
        name: `f${index}`,
        content: Buffer.alloc(900_000),
      })),
    };
    for (const [what, items] of Object.entries(attacks)) {
      test(`${what} is refused, and nothing is kept`, () => refused(() => user.importArchive(items)));
    }

    test('an archive that is cut short or is none is refused', async () => {
      const tar = buildTar([{ name: 'a', content: 'x'.repeat(10_000) }]);
      await refused(() => user.importArchive(tar.subarray(0, 5_000)));
      await refused(() => user.importArchive(Buffer.from('no archive at all'.repeat(100))));
    });

    test('a file through a link replaces the link, and nothing is written where it leads', async () => {
      const outside = join(directory, 'outside');
      await mkdir(outside);
      const items = [
        { name: 'way', type: '2', target: outside },
        { name: 'way/canary', content: 'x' },
      ];
      const { commit } = await user.importArchive(items);
      expect(await readdir(outside)).toEqual([]);
      expect(await user.read(commit, 'way/canary')).toBe('x');
    });
  });

  describe('in a bundle', () => {
    const trees: Readonly<Record<string, (forge: ForgedRepository) => string>> = {
      ...Object.fromEntries(
        ['.git', '.GIT', 'git~1', '.g\u200cit', '..', '.', '.git .', 'a/b'].map((name) => [
          `the name ${JSON.stringify(name)}`,
          (forge: ForgedRepository) => forge.treeOf(Buffer.from(name).toString('latin1')),
        ]),
      ),
      'a submodule': (forge) => forge.tree([{ mode: '160000', name: 'module', id: 'a'.repeat(40) }]),
      'a mode that is none': (forge) => forge.treeOf('x', 'x', '170000'),
      'a mode of a device': (forge) => forge.treeOf('x', 'x', '060000'),
      'a name twice': (forge) => {
        const one: ForgedEntry = { mode: '100644', name: 'x', id: forge.blob('1') };
        return forge.tree([one, { ...one, id: forge.blob('2') }]);
      },
      'names out of order': (forge) =>
        forge.tree(['b', 'a'].map((name) => ({ mode: '100644', name, id: forge.blob(name) }))),
      'a .gitmodules that is a link': (forge) => forge.treeOf('.gitmodules', '/etc/passwd', '120000'),
      'a link of more than 4,095 bytes': (forge) => forge.treeOf('link', 'x'.repeat(4_096), '120000'),
      'a part of more than 255 bytes': (forge) => forge.treeOf('x'.repeat(256)),
      'trees that contain each other a thousandfold': (forge) => {
        let tree = forge.treeOf('leaf');
        for (let depth = 0; depth < 12; depth++) {
          tree = forge.tree('0123456789'.split('').map((name) => ({ mode: '40000', name, id: tree })));
        }
        return tree;
      },
      'a blob that is small to send and large to have': (forge) => forge.treeOf('zeros', '\0'.repeat(1_500_000)),
      'many blobs that are small to send': (forge) =>
        forge.tree('abcdefg'.split('').map((name) => ({ mode: '100644', name, id: forge.blob(name.repeat(900_000)) }))),
    };
    for (const [what, build] of Object.entries(trees)) {
      test(`${what} is refused, and nothing is kept`, () =>
        refused(() => user.importBundle(forged.bundle(forged.commit(build(forged))))));
    }

    test('a forged bundle without any of it is taken', async () => {
      const commit = forged.commit(forged.treeOf('fine'));
      expect(await user.importBundle(forged.bundle(commit))).toMatchObject({ commit });
    });

    test('forbidden names are refused in the history too', async () => {
      const old = forged.commit(forged.treeOf('.GIT'));
      await refused(() => user.importBundle(forged.bundle(forged.commit(forged.treeOf('fine2'), [old]))));
    });

    test('objects that are damaged, missing or not what they are called are refused', async () => {
      const blob = forged.blob('will be missing\n');
      const tree = forged.tree([{ mode: '100644', name: 'x', id: blob }]);
      const commit = forged.commit(tree);
      const whole = forged.bundle(commit);
      const damaged = Buffer.from(whole);
      damaged[damaged.byteLength - 30] = damaged[damaged.byteLength - 30]! ^ 0xff;
      await refused(() => user.importBundle(damaged));
      await refused(() => user.importBundle(whole.subarray(0, whole.byteLength - 10)));
      await refused(() => user.importBundle(forged.bundle(commit, { pack: forged.pack(commit, [commit, tree]) })));
      await refused(() => user.importBundle(forged.bundle(tree)));
      const nameless = forged.tree([{ mode: '100644', name: '', id: blob }]);
      const odd = forged.commit(nameless);
      await refused(() => user.importBundle(forged.bundle(odd, { pack: forged.pack(odd, [odd, nameless, blob]) })));
      expect(await user.importBundle(whole)).toMatchObject({ commit });
    });

    test('a head that lies is refused', async () => {
      const commit = forged.commit(forged.treeOf('of the head'));
      const ref = `${commit} refs/heads/main\n`;
      const heads = {
        'another object than there is': `# v2 git bundle\n${'b'.repeat(40)} refs/heads/main\n\n`,
        'a prerequisite that nobody has': `# v2 git bundle\n-${'b'.repeat(40)} x\n${ref}\n`,
        'a filter': `# v3 git bundle\n@filter=blob:none\n${ref}\n`,
        'another object format': `# v3 git bundle\n@object-format=sha256\n${ref}\n`,
        'a version that is none': `# v9 git bundle\n${ref}\n`,
        'no end': `# v2 git bundle\n${`${'c'.repeat(40)} refs/heads/x\n`.repeat(30_000)}`,
        'words in place of ids': `# v2 git bundle\n--upload-pack=touch refs/heads/main\n\n`,
      };
      for (const head of Object.values(heads)) await refused(() => user.importBundle(forged.bundle(commit, { head })));
      expect(await user.importBundle(forged.bundle(commit))).toMatchObject({ commit });
    });

    test('more bytes than the limit are refused while they come', () =>
      refused(() =>
        user.importBundle(Buffer.concat([Buffer.from('# v2 git bundle\n'), Buffer.alloc(3_500_000, 0x61)])),
      ));
  });

  describe('in a checkout', () => {
    const attacks = {
      'a directory that is git elsewhere': 'mkdir .GIT; echo x > .GIT/config',
      'a name with a backslash that leads into git': "echo x > 'a\\.git'",
      'a file that is larger than it takes on the disk': 'truncate -s 1T sparse',
      'too many files': 'for i in $(seq 501); do : > f$i; done',
      'too much in all': 'for i in 1 2 3 4 5; do truncate -s 900000 f$i; done',
    };
    for (const [what, script] of Object.entries(attacks)) {
      test(`${what} is refused, and nothing is kept`, async () => {
        const base = await user.importFiles({ a: 'x\n' });
        const checkout = await rig.newCheckout();
        await user.attach(checkout, base.commit);
        await checkout.shell(script);
        await refused(() => user.collect(checkout, base.commit));
        await checkout.shell('shopt -s dotglob; rm -rf .GIT f* a*git sparse; echo y > a');
        expect((await user.collect(checkout, base.commit)).counts.files).toBe(1);
      });
    }

    test('more entries than are looked at, ignored ones too, are refused', async () => {
      const small = await openLocalRig({ limits: { collectEntries: 100 } });
      try {
        const own = await WorkspaceUser.create(small.workspaces);
        const base = await own.importFiles({ '.gitignore': 'build\n' });
        const checkout = await small.newCheckout();
        await own.attach(checkout, base.commit);
        await checkout.shell('mkdir build; for i in $(seq 200); do : > build/$i; done');
        await expect(own.collect(checkout, base.commit)).rejects.toMatchObject({ code: 'limit_exceeded' });
      } finally {
        await small.close();
      }
    });

    for (const point of ['workspace-collect-listed', 'workspace-collect-read']) {
      for (const [what, [script, files]] of Object.entries({
        'a file that grows': ['echo more >> b', 1],
        'a file that is written over with the same size and time': [
          'touch -r b s; printf Y > b; touch -r s b; rm s',
          1,
        ],
        'a file that becomes a link': ['rm b; ln -s /etc/passwd b', 1],
        'a file that is put in its place': ['echo new > c; mv c b', 1],
        'a file that disappears': ['rm b', 0],
        'a file that appears': ['echo new > c', 2],
      } as const)) {
        test(`${what} at ${point} is an error, not a mixture`, async () => {
          const base = await user.importFiles({ a: 'x\n' });
          const checkout = await rig.newCheckout();
          await user.attach(checkout, base.commit);
          await checkout.shell('printf X > b');
          const gate = faults.hold(point);
          const collected = user.collect(checkout, base.commit);
          const said = collected.then(
            () => 'taken',
            (error: { code?: string }) => error.code,
          );
          await gate.reached;
          await checkout.shell(script);
          gate.open();
          expect(['file_changed', 'file_not_found']).toContain(await said);
          expect((await user.collect(checkout, base.commit)).counts.files).toBe(files);
        });
      }
    }
  });

  describe('names of objects and holds', () => {
    test('what git would read as an option, a range or a ref is no object', async () => {
      const words = ['--output=/tmp/x', 'HEAD', 'refs/holds/x', 'a'.repeat(41), `${'a'.repeat(40)}^{tree}`, ''];
      for (const word of words) {
        const code = { code: 'invalid_request' };
        await expect(workspaces.getCommit({ ...user, commit: word })).rejects.toMatchObject(code);
        await expect(user.diff(word, word)).rejects.toMatchObject(code);
        await expect(user.export(word, 'bundle')).rejects.toMatchObject(code);
        await expect(workspaces.readBlob({ ...user, blob: word })).rejects.toMatchObject(code);
        await expect(workspaces.hold({ ...user, name: 'x', object: word })).rejects.toMatchObject(code);
      }
    });

    test('a hold has any name and is nothing but a hold', async () => {
      const { commit } = await user.importFiles({ a: 'held by odd names' });
      const names = ['../../heads/main', 'HEAD', 'x\ny delete refs/heads/z', '-d', 'a/b/../c', 'caf\u00e9'];
      for (const name of names) await workspaces.hold({ ...user, name, object: commit });
      const found = (await workspaces.holds(user)).map(({ name }) => name);
      expect([...found].sort()).toEqual([...names].sort());
      expect(await readdir(join(home(), 'objects.git/refs'))).toEqual(['heads', 'holds']);
      expect(await readdir(join(home(), 'objects.git/refs/heads'))).toEqual([]);
      await workspaces.release({ ...user, names });
      expect(await workspaces.holds(user)).toEqual([]);
    });
  });

  describe('C38: what content or surroundings say takes no part', () => {
    const attributes = [
      '* text eol=crlf ident',
      '*.txt filter=evil diff=evil merge=union',
      'hidden export-ignore',
      'subst export-subst',
      '',
    ].join('\n');
    const files = {
      '.gitattributes': attributes,
      'a.txt': 'one\ntwo\nthree\n$Id$\n',
      hidden: 'hidden\n',
      subst: '$Format:%H$\n',
    };

    test('attributes of the content change no byte, hide no file and merge nothing', async () => {
      const base = await user.importFiles(files);
      expect(await user.read(base.commit, 'a.txt')).toBe(files['a.txt']);
      expect(await user.read(base.commit, 'hidden')).toBe('hidden\n');
      expect(await user.read(base.commit, 'subst')).toBe('$Format:%H$\n');
      const checkout = await rig.newCheckout();
      await user.attach(checkout, base.commit);
      expect(await checkout.shell('cat a.txt hidden subst')).toBe(`${files['a.txt']}hidden\n${files.subst}`);
      const [ours, theirs] = await Promise.all(
        ['ours', 'theirs'].map((side) => user.importFiles({ ...files, 'a.txt': `one\n${side}\nthree\n$Id$\n` })),
      );
      expect(await user.merge(base.tree, ours!.tree, theirs!.tree)).toMatchObject({
        kind: 'conflicts',
        conflicts: [{ path: 'a.txt', kind: 'content' }],
      });
      // The same steps, by a git whose repository does not take the attributes back.
      const plain = join(directory, 'plain.git');
      const git = (...words: string[]) => run('git', ['-C', plain, ...words], { env: plainEnvironment });
      await run('git', ['init', '-q', '--bare', plain], { env: plainEnvironment });
      await writeFile(join(directory, 'plain.bundle'), await user.export(base.commit, 'bundle'));
      await git('fetch', '-q', join(directory, 'plain.bundle'), 'main:main');
      await run('bash', ['-c', `git -C ${plain} archive main | tar -t > ${plain}/list`], { env: plainEnvironment });
      expect(await readFile(join(plain, 'list'), 'utf8')).not.toContain('hidden');
    });

    test('variables, configuration, hooks and filters of the machine take no part', async () => {
      const evil = join(directory, 'evil');
      await mkdir(join(evil, 'hooks'), { recursive: true });
      const pwned = join(evil, 'pwned');
      for (const hook of ['reference-transaction', 'post-commit', 'pre-push']) {
        await writeFile(join(evil, 'hooks', hook), `#!/bin/sh\ntouch ${pwned}\n`, { mode: 0o755 });
      }
      const config = `[core]\n\thooksPath = ${evil}/hooks\n\tfsmonitor = touch ${pwned}\n[commit]\n\tgpgSign = true\n`;
      await writeFile(join(evil, '.gitconfig'), config);
      const set = {
        HOME: evil,
        XDG_CONFIG_HOME: evil,
        GIT_CONFIG_GLOBAL: join(evil, '.gitconfig'),
        GIT_OBJECT_DIRECTORY: '/nonexistent',
        GIT_CONFIG_COUNT: '1',
        GIT_CONFIG_KEY_0: 'core.hooksPath',
        GIT_CONFIG_VALUE_0: join(evil, 'hooks'),
      };
      const before = Object.fromEntries(Object.keys(set).map((name) => [name, process.env[name]]));
      Object.assign(process.env, set);
      try {
        const { commit } = await user.importFiles({ a: 'in evil surroundings\n' });
        await workspaces.hold({ ...user, name: 'evil', object: commit });
        await workspaces.release({ ...user, names: ['evil'] });
        await expect(stat(pwned)).rejects.toMatchObject({ code: 'ENOENT' });
        // The same by a git that takes them over.
        const repository = join(home(), 'objects.git');
        const environment = { ...process.env, GIT_OBJECT_DIRECTORY: undefined, GIT_DIR: repository };
        await run('git', ['update-ref', 'refs/evil/x', commit], { env: environment });
        await stat(pwned);
        await run('git', ['update-ref', '-d', 'refs/evil/x'], { env: environment });
      } finally {
        for (const [name, value] of Object.entries(before)) {
          if (value === undefined) delete process.env[name];
          else process.env[name] = value;
        }
      }
    });

    test('a repository in the checkout is only files: nothing of its configuration runs here', async () => {
      const base = await user.importFiles({ a: 'x\n' });
      const checkout = await rig.newCheckout();
      await user.attach(checkout, base.commit);
      const pwned = join(directory, 'pwned-by-checkout');
      await checkout.shell(`
        git config core.fsmonitor "touch ${pwned}; false"; git config filter.evil.clean "touch ${pwned}"
        echo '* filter=evil' > .gitattributes; printf '#!/bin/sh\\ntouch ${pwned}\\n' > .git/hooks-x; echo y > a`);
      const { tree } = await user.collect(checkout, base.commit);
      await expect(stat(pwned)).rejects.toMatchObject({ code: 'ENOENT' });
      expect(tree).not.toBe(base.tree);
      // There, by the checkout's own git, it does run.
      await checkout.shell('git status > /dev/null 2>&1; true');
      await stat(pwned);
    });

    const plainEnvironment = { PATH: process.env['PATH'], HOME: '/nonexistent', GIT_CONFIG_NOSYSTEM: '1' };
  });

  describe('C74: what is not ours is not removed', () => {
    test('a strange directory among the workspaces and a strange ref stay', async () => {
      const strange = join(directory, 'workspaces', 'not-a-workspace');
      await mkdir(strange);
      await rm(join(directory, 'workspaces', 'home', 'x'), { force: true });
      const own = await WorkspaceUser.create(workspaces);
      const { commit } = await own.importFiles({ a: 'named by a strange ref\n' });
      const repository = join(directory, 'workspaces', own.workspaceId, 'objects.git');
      await run('git', ['-C', repository, 'update-ref', 'refs/strange/x', commit], {
        env: { PATH: process.env['PATH'] },
      });
      await workspaces.tidy({ ...own, olderThanMs: 0 });
      expect(await workspaces.getCommit({ ...own, commit })).toMatchObject({ commit });
      await workspaces.remove(own);
      await expect(stat(repository)).rejects.toMatchObject({ code: 'ENOENT' });
      expect(await readdir(strange)).toEqual([]);
    });
  });
});
