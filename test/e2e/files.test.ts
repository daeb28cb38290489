/** Files through the SDK, HTTP, control, node and a worker in a real sandbox. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect } from 'vitest';
import type { Sandbox } from '../../src/sdk/index.ts';
import { Platform } from '../support/platform.ts';
import { requires, testWith } from '../support/requires.ts';

const test = testWith(requires.root, requires.cgroups);

let platform: Platform;
let sandbox: Sandbox;

beforeAll(async () => {
  platform = await Platform.start();
  sandbox = await platform.client.sandboxes.create();
});
afterAll(() => platform.close());

const sha = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');
const out = async (command: string) => (await sandbox.exec(command)).stdout;

test('E117: text, bytes and streams are written and read as they are', async () => {
  const { files } = sandbox;
  expect(await files.write('/tmp/text', 'zwölf\r\n\0end')).toMatchObject({
    path: '/tmp/text',
    type: 'file',
    mode: 0o644,
  });
  expect(await files.readText('/tmp/text')).toBe('zwölf\r\n\0end');
  const bytes = randomBytes(700_001);
  await files.write('/tmp/bytes', bytes);
  expect(await out('sha256sum < /tmp/bytes')).toContain(sha(bytes));
  expect(sha(await files.read('/tmp/bytes'))).toBe(sha(bytes));
  async function* chunks() {
    for (const part of ['one ', 'two ', 'three']) yield Buffer.from(part);
  }
  await files.write('/tmp/stream', chunks());
  const opened = await files.open('/tmp/stream');
  expect(opened.sizeBytes).toBe(13);
  expect(await new Response(opened.stream).text()).toBe('one two three');
  await files.write('/tmp/empty', '');
  expect(await files.readText('/tmp/empty')).toBe('');
});

test('E117: a replaced file keeps its mode and owner, and readers find the old content or the new', async () => {
  await sandbox.exec('echo old > /tmp/kept; chmod 750 /tmp/kept; chown 1000:1000 /tmp/kept; ln /tmp/kept /tmp/second');
  const before = await sandbox.files.stat('/tmp/kept');
  const after = await sandbox.files.write('/tmp/kept', 'new\n');
  expect(after).toMatchObject({ mode: 0o750, uid: 1000, gid: 1000 });
  expect(after.etag).not.toBe(before.etag);
  // The other name of the old file still has the old content: it was replaced, not written into.
  expect(await out('cat /tmp/second /tmp/kept')).toBe('old\nnew\n');
  const big = Buffer.alloc(2_000_000, 'a');
  await sandbox.files.write('/tmp/whole', big);
  const writes = Array.from({ length: 10 }, (_, at) =>
    sandbox.files.write('/tmp/whole', Buffer.alloc(2_000_000, at % 2 === 0 ? 'b' : 'a')),
  );
  const seen = await Promise.all(Array.from({ length: 20 }, () => sandbox.files.read('/tmp/whole')));
  await Promise.all(writes);
  for (const bytes of seen) {
    expect(bytes.byteLength).toBe(2_000_000);
    expect(new Set(bytes).size).toBe(1);
  }
  expect(await out('ls -A /tmp | grep -c "^\\."')).toBe('0\n');
});

test('E117: an upload that is broken off changes nothing and leaves nothing', async () => {
  await sandbox.files.write('/tmp/broken/f', 'old');
  async function* failing() {
    yield Buffer.alloc(300_000);
    throw new Error('The caller is gone.');
  }
  await expect(sandbox.files.write('/tmp/broken/f', failing())).rejects.toThrow();
  expect(await sandbox.files.readText('/tmp/broken/f')).toBe('old');
  await expect.poll(() => out('ls -A /tmp/broken'), { timeout: 20_000 }).toBe('f\n');
});

test('E117: If-Match and If-None-Match decide between writers', async () => {
  const { files } = sandbox;
  const first = await files.write('/tmp/match', 'one', { ifAbsent: true });
  await expect(files.write('/tmp/match', 'two', { ifAbsent: true })).rejects.toMatchObject({ code: 'file_exists' });
  const second = await files.write('/tmp/match', 'two', { ifMatch: first.etag });
  await expect(files.write('/tmp/match', 'three', { ifMatch: first.etag })).rejects.toMatchObject({
    code: 'file_changed',
  });
  await expect(files.write('/tmp/match', 'x', { ifMatch: 'nonsense' })).rejects.toMatchObject({ code: 'file_changed' });
  const attempts = await Promise.allSettled(
    Array.from({ length: 10 }, (_, at) => files.write('/tmp/match', `w${at}`, { ifMatch: second.etag })),
  );
  expect(attempts.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
});

test(
  'E118: a file that is written with an owner is never seen with another one',
  async () => {
    const { files } = sandbox;
    const owners = { a: { user: 1_001, group: 1_002 }, b: { user: 1_003, group: 1_004 } } as const;
    // Looks at the same open file twice, so that owner and content are those of one file.
    const look = `while (!-e "/tmp/owned/stop") { open(my $f, "<", "/tmp/owned/file") or next;
    my @s = stat $f; my $c = <$f>; next unless defined $c; next if $seen{"$c $s[4]:$s[5]"}++; syswrite STDOUT, "$c $s[4]:$s[5]\\n"; }`;
    await files.makeDirectory('/tmp/owned');
    const watcher = await sandbox.processes.start(['perl', '-e', look]);
    for (let round = 0; round < 100; round++) {
      for (const [content, owner] of Object.entries(owners)) {
        const entry = await files.write('/tmp/owned/file', content, { owner });
        expect([entry.uid, entry.gid, entry.mode]).toEqual([owner.user, owner.group, 0o644]);
      }
      await files.remove('/tmp/owned/file');
    }
    // The control: in two steps both owners are seen.
    while (
      !(await watcher.readOutput({ encoding: 'utf8' })).items.some((item) => JSON.stringify(item).includes('c 0:0'))
    ) {
      await files.write('/tmp/owned/file', 'c');
      await files.chown('/tmp/owned/file', { user: 1_005, group: 1_006 });
      await files.remove('/tmp/owned/file');
    }
    await files.write('/tmp/owned/stop', '');
    const seen = (await watcher.stdout()).trim().split('\n');
    expect(seen.filter((pair) => !pair.startsWith('c ')).sort()).toEqual(['a 1001:1002', 'b 1003:1004']);
  },
  { timeout: 180_000 },
);

test('E118: with an owner a replaced file keeps its mode and what the owner does not name, and a refused one is left as it was', async () => {
  const { files } = sandbox;
  await sandbox.exec('echo old > /tmp/part; chmod 4750 /tmp/part; chown 1000:1007 /tmp/part; chmod 4750 /tmp/part');
  expect(await files.write('/tmp/part', 'new', { owner: { user: 1_008 } })).toMatchObject({
    ...{ uid: 1_008, gid: 1_007, mode: 0o4750 },
  });
  expect(await files.append('/tmp/part', 'er', { owner: { user: 1_009 } })).toMatchObject({
    ...{ uid: 1_009, gid: 1_007, mode: 0o4750, sizeBytes: 5 },
  });
  await sandbox.exec('install -d -m 777 /tmp/theirs; echo old > /tmp/theirs/f; chmod 666 /tmp/theirs/f');
  const before = await files.stat('/tmp/theirs/f');
  const refused = files.write('/tmp/theirs/f', 'new', { user: 'user', owner: { user: 1_010 } });
  await expect(refused).rejects.toMatchObject({ code: 'permission_denied' });
  expect(await files.stat('/tmp/theirs/f')).toEqual(before);
  expect(await out('ls -A /tmp/theirs')).toBe('f\n');
});

test('E118: ranges, append, mode and owner', async () => {
  const { files } = sandbox;
  await files.write('/tmp/range', '0123456789');
  expect(await files.readText('/tmp/range', { offset: 2, length: 3 })).toBe('234');
  expect(await files.readText('/tmp/range', { offset: 7 })).toBe('789');
  expect(await files.readText('/tmp/range', { offset: -4 })).toBe('6789');
  expect(await files.readText('/tmp/range', { offset: 8, length: 100 })).toBe('89');
  await expect(files.read('/tmp/range', { offset: 10 })).rejects.toMatchObject({ code: 'range_not_satisfiable' });
  expect(await files.append('/tmp/range', 'ab')).toMatchObject({ sizeBytes: 12 });
  await files.append('/tmp/new/appended', 'first');
  expect(await files.readText('/tmp/new/appended')).toBe('first');
  expect(await files.write('/tmp/moded', 'x', { mode: 0o600, owner: { user: 'user' } })).toMatchObject({
    mode: 0o600,
    uid: 1000,
  });
  expect(await files.chmod('/tmp/moded', 0o4755)).toMatchObject({ mode: 0o4755 });
  expect(await files.chown('/tmp/moded', { user: 0, group: 1000 })).toMatchObject({ uid: 0, gid: 1000 });
  expect(await out('stat -c "%a %u %g" /tmp/moded')).toMatch(/755 0 1000/);
  await expect(files.chown('/tmp/moded', { user: 'nobody-here' })).rejects.toMatchObject({ code: 'user_not_usable' });
});

test('E118: a user reads and writes with its own rights', async () => {
  const { files } = sandbox;
  await files.write('/root/secret', 's', { mode: 0o600 });
  const user = 'user';
  await expect(files.read('/root/secret', { user })).rejects.toMatchObject({ code: 'permission_denied' });
  await expect(files.write('/etc/mine', 'x', { user })).rejects.toMatchObject({ code: 'permission_denied' });
  expect(await files.write('/home/user/mine', 'x', { user })).toMatchObject({ uid: 1000, gid: 1000 });
  await expect(files.read('/tmp', { user: 'no-such-user' })).rejects.toMatchObject({ code: 'user_not_usable' });
});

test('E119: 200 MiB go in and out as a stream', async () => {
  const chunk = randomBytes(1024 * 1024);
  const hash = createHash('sha256');
  async function* source() {
    for (let at = 0; at < 200; at++) {
      hash.update(chunk);
      yield chunk;
    }
  }
  expect(await sandbox.files.write('/tmp/large', source())).toMatchObject({ sizeBytes: 200 * 1024 * 1024 });
  const expected = hash.digest('hex');
  expect(await out('sha256sum < /tmp/large')).toContain(expected);
  const { stream } = await sandbox.files.open('/tmp/large');
  const back = createHash('sha256');
  for await (const bytes of stream) back.update(bytes);
  expect(back.digest('hex')).toBe(expected);
  await sandbox.files.remove('/tmp/large');
});

test('E119: a slow download does not hold up other file operations', async () => {
  await sandbox.exec('head -c 50000000 /dev/zero > /tmp/slow');
  const slow = await Promise.all(Array.from({ length: 6 }, () => sandbox.files.open('/tmp/slow')));
  for (let at = 0; at < 20; at++) expect(await sandbox.files.exists('/tmp/slow')).toBe(true);
  await Promise.all(slow.map(({ stream }) => stream.cancel()));
  expect((await sandbox.files.read('/tmp/slow')).byteLength).toBe(50_000_000);
});

test('E120: every misuse of a directory has its own code', async () => {
  const { files } = sandbox;
  await sandbox.exec('mkdir -p /tmp/d/inner; echo x > /tmp/d/f');
  const refused = async (call: Promise<unknown>, code: string) =>
    await expect(call, code).rejects.toMatchObject({ code });
  await refused(files.read('/tmp/d'), 'is_a_directory');
  await refused(files.write('/tmp/d', 'x'), 'is_a_directory');
  await refused(files.list('/tmp/d/f'), 'not_a_directory');
  await refused(files.read('/tmp/d/f/g'), 'not_a_directory');
  await refused(files.read('/tmp/none'), 'file_not_found');
  await refused(files.list('/tmp/none'), 'file_not_found');
  await refused(files.write('/tmp/none/f', 'x', { parents: false }), 'file_not_found');
  await refused(files.makeDirectory('/tmp/d'), 'file_exists');
  await refused(files.makeDirectory('/tmp/none/x'), 'file_not_found');
  await refused(files.remove('/tmp/d'), 'directory_not_empty');
  await refused(files.copy('/tmp/d', '/tmp/e'), 'is_a_directory');
  await refused(files.move('/tmp/d/f', '/tmp/d/inner'), 'file_exists');
  await refused(files.read(`/tmp/${'n'.repeat(300)}`), 'file_not_usable');
  expect(await files.makeDirectory('/tmp/d', { parents: true })).toMatchObject({ type: 'directory' });
  expect(await files.makeDirectory('/tmp/p/q/r', { parents: true, mode: 0o700 })).toMatchObject({ mode: 0o700 });
  expect(await files.copy('/tmp/d', '/tmp/e', { recursive: true })).toMatchObject({ type: 'directory' });
  expect((await files.list('/tmp/e', { depth: 2 })).map(({ path }) => path)).toEqual(['/tmp/e/f', '/tmp/e/inner']);
  expect(await files.move('/tmp/e', '/tmp/moved')).toMatchObject({ path: '/tmp/moved' });
  await files.remove('/tmp/d', { recursive: true });
  await files.remove('/tmp/moved/f');
  expect([await files.exists('/tmp/d'), await files.exists('/tmp/e'), await files.exists('/tmp/moved/f')]).toEqual([
    false,
    false,
    false,
  ]);
});

test('E120: a list is paged, whatever changes between pages, and goes as deep as asked', async () => {
  await sandbox.exec(
    'mkdir -p /tmp/many/sub/deep; cd /tmp/many; for i in $(seq 100 349); do echo > f$i; done; touch sub/deep/x',
  );
  const page = await sandbox.files.listPage('/tmp/many', { limit: 100 });
  expect(page.items).toHaveLength(100);
  await sandbox.exec('rm /tmp/many/f199');
  const names: string[] = page.items.map(({ path }) => path);
  let cursor = page.nextCursor;
  while (cursor !== null) {
    const next = await sandbox.files.listPage('/tmp/many', { limit: 100, cursor });
    names.push(...next.items.map(({ path }) => path));
    cursor = next.nextCursor;
  }
  expect(names).toHaveLength(251);
  expect(new Set(names).size).toBe(251);
  expect(names).toEqual([...names].sort());
  const deep = await sandbox.files.list('/tmp/many/sub', { depth: 5 });
  expect(deep.map(({ path }) => path)).toEqual(['/tmp/many/sub/deep', '/tmp/many/sub/deep/x']);
  await expect(sandbox.files.listPage('/tmp/many', { cursor: '***' })).rejects.toMatchObject({
    code: 'invalid_request',
  });
});

const oddNames = [
  'new\nline',
  'quote\'"`$(id)',
  'ünïcödé 漢字 🦀',
  '-rf',
  ' lead and trail ',
  '\\back\\slash',
  '*',
  '...',
  'a'.repeat(255),
];

for (const name of oddNames) {
  test(`E121: a file named ${JSON.stringify(name.slice(0, 30))} is like any other`, async () => {
    const { files } = sandbox;
    await files.makeDirectory('/tmp/odd', { parents: true });
    const path = `/tmp/odd/${name}`;
    await files.write(path, name);
    expect(await files.readText(path)).toBe(name);
    expect((await files.list('/tmp/odd')).map((entry) => entry.path)).toEqual([path]);
    const tar = await new Response(await files.download('/tmp/odd')).bytes();
    await files.upload('/tmp/odd-copy', tar);
    expect(await files.readText(`/tmp/odd-copy/${name}`)).toBe(name);
    await files.move(path, `/tmp/odd/x`);
    await files.copy('/tmp/odd/x', path);
    await files.remove(path);
    await files.remove('/tmp/odd', { recursive: true });
    await files.remove('/tmp/odd-copy', { recursive: true });
  });
}

test('E121: a name that is not UTF-8 is listed with its bytes', async () => {
  await sandbox.exec("mkdir /tmp/raw; touch $'/tmp/raw/\\xff\\xfe'");
  const [entry] = await sandbox.files.list('/tmp/raw');
  expect(entry).toMatchObject({
    path: '/tmp/raw/\u{fffd}\u{fffd}',
    pathBase64: Buffer.from('/tmp/raw/\xff\xfe', 'latin1').toString('base64'),
  });
});

test('E122: a relative path is below /workspace, and no file operation waits behind a command', async () => {
  const stop = new AbortController();
  const long = sandbox.exec('cd /tmp; sleep 600', { signal: stop.signal }).catch(() => 'stopped');
  await sandbox.files.write('here/f', 'x');
  expect(await sandbox.files.stat('./here/f')).toMatchObject({ path: '/workspace/here/f' });
  expect(await out('cat /workspace/here/f')).toBe('x');
  expect(await sandbox.files.readText('here/../here/f')).toBe('x');
  stop.abort();
  expect(await long).toBe('stopped');
});

test('a FIFO, a device and a socket are refused by name, at once; procfs files are read to their end', async () => {
  const { files } = sandbox;
  await sandbox.exec('mkfifo /tmp/fifo; ln -s loop2 /tmp/loop1; ln -s loop1 /tmp/loop2');
  for (const path of ['/tmp/fifo', '/dev/zero', '/dev/tty']) {
    await expect(files.read(path), path).rejects.toMatchObject({ code: 'file_not_usable' });
    expect(await files.stat(path)).toMatchObject({ type: 'other' });
  }
  await expect(files.append('/tmp/fifo', 'x')).rejects.toMatchObject({ code: 'file_not_usable' });
  await expect(files.read('/tmp/loop1')).rejects.toMatchObject({ code: 'file_not_usable' });
  expect(await files.readText('/proc/self/status')).toContain('Name:');
  expect(await files.readText('/proc/version')).toContain('Linux');
  // Packing a tree with a FIFO in it ends.
  await sandbox.exec('mkdir /tmp/special; mkfifo /tmp/special/p; echo x > /tmp/special/f');
  expect((await new Response(await files.download('/tmp/special')).bytes()).byteLength).toBeGreaterThan(1024);
  await files.remove('/tmp/special', { recursive: true });
});

test('a directory goes out and in as a tar stream: modes, links, empty directories, long names', async () => {
  const long = `${'d'.repeat(120)}/${'e'.repeat(120)}`;
  await sandbox.exec(
    `mkdir -p /tmp/tree/empty "/tmp/tree/${long}"; cd /tmp/tree; echo run > script; chmod 751 script; ln -s script link; ln -s /etc/passwd out; echo deep > "${long}/f"; head -c 3000000 /dev/urandom > big`,
  );
  const tar = await new Response(await sandbox.files.download('/tmp/tree')).bytes();
  expect(await sandbox.files.upload('/tmp/tree2', tar)).toMatchObject({ bytes: tar.byteLength });
  expect(
    (await sandbox.exec('diff -r --no-dereference /tmp/tree /tmp/tree2 && stat -c %a /tmp/tree2/script')).stdout,
  ).toBe('751\n');
  // The system's own tar reads it, and ours reads the system's.
  await sandbox.files.write('/tmp/tree.tar', tar);
  expect(
    (
      await sandbox.exec(
        'mkdir /tmp/tree3 && tar -xf /tmp/tree.tar -C /tmp/tree3 && diff -r --no-dereference /tmp/tree /tmp/tree3',
      )
    ).exitCode,
  ).toBe(0);
  await sandbox.exec('tar -cf /tmp/other.tar -C /tmp/tree .');
  await sandbox.files.upload('/tmp/tree4', await sandbox.files.read('/tmp/other.tar'));
  expect((await sandbox.exec('diff -r --no-dereference /tmp/tree /tmp/tree4')).exitCode).toBe(0);
});

test('a tar stream cannot write outside its directory', async () => {
  await sandbox.exec(
    'mkdir -p /tmp/evil; cd /tmp/evil; echo x > f; tar -cPf /tmp/up.tar --transform="s,^f,../escaped," f; tar -cPf /tmp/abs.tar /tmp/evil/f; mkdir l; ln -s /tmp/evil l/out; tar -cf /tmp/link.tar -C l out; mkdir m; mkdir m/out; echo y > m/out/through; tar -rf /tmp/link.tar -C m out/through',
  );
  for (const name of ['up', 'abs']) {
    const tar = await sandbox.files.read(`/tmp/${name}.tar`);
    await sandbox.files.upload('/tmp/target', tar).catch(() => undefined);
  }
  await sandbox.files.upload('/tmp/target', await sandbox.files.read('/tmp/link.tar')).catch(() => undefined);
  expect(await out('ls /tmp/escaped /tmp/evil/through 2>/dev/null; ls /tmp/target/tmp 2>/dev/null')).toBe('');
});

test('E129: a handle from an earlier life is refused, for a look as for a change', async () => {
  const own = await platform.client.sandboxes.create();
  const { Sandbox } = await import('../../src/sdk/index.ts');
  const later = await Sandbox.connect(own.id, { client: platform.client });
  await own.files.write('f', 'x');
  await later.stop();
  await expect(own.files.read('f')).rejects.toMatchObject({ code: 'sandbox_wrong_state' });
  await later.start();
  await expect(own.files.read('f')).rejects.toMatchObject({ code: 'stale_generation' });
  await expect(own.files.write('f', 'y')).rejects.toMatchObject({ code: 'stale_generation' });
  expect(await later.files.readText('f')).toBe('x');
  await later.delete();
});

test('a lease keeps others from writing and from nothing else', async () => {
  const own = await platform.client.sandboxes.create();
  await own.lease({ holder: 'me', ttlMs: 60_000 }, async (held) => {
    await expect(own.files.write('f', 'x')).rejects.toMatchObject({ code: 'lease_held' });
    await expect(own.files.makeDirectory('d')).rejects.toMatchObject({ code: 'lease_held' });
    await held.files.write('f', 'mine');
    expect(await own.files.readText('f')).toBe('mine');
  });
  await own.files.write('f', 'again');
  await own.delete();
});

test('an idempotency key makes one change of many; a large stream under one is refused with the reason', async () => {
  const { files } = sandbox;
  const idempotencyKey = `files-${randomBytes(8).toString('hex')}`;
  await Promise.all(Array.from({ length: 5 }, () => files.append('/tmp/keyed', 'x', { idempotencyKey })));
  expect(await files.readText('/tmp/keyed')).toBe('x');
  await expect(files.append('/tmp/keyed', 'other', { idempotencyKey })).rejects.toMatchObject({
    code: 'idempotency_key_reused',
  });
  const big = files.write('/tmp/keyed', Buffer.alloc(9 * 1024 * 1024), { idempotencyKey: `${idempotencyKey}-big` });
  await expect(big).rejects.toMatchObject({ code: 'payload_too_large' });
});

test('a killed worker is not seen by looks, and the sandbox serves on', async () => {
  const kill =
    'for p in /proc/[0-9]*; do [ $p != /proc/1 ] && [ "$(cat $p/comm 2>/dev/null)" = atoll-init ] && kill -9 $(basename $p); done; true';
  await sandbox.files.write('/tmp/survives', 'x');
  for (let at = 0; at < 5; at++) {
    const [text] = await Promise.all([sandbox.files.readText('/tmp/survives'), sandbox.exec(kill)]);
    expect(text).toBe('x');
    expect(await sandbox.files.readText('/tmp/survives')).toBe('x');
  }
});

test('E131: E133: file calls leave no shell, no session and no record behind', async () => {
  const own = await platform.client.sandboxes.create();
  await own.files.write('a', 'x');
  await own.files.list('.');
  const watch = await own.files.watch('.');
  watch.close();
  await new Response(await own.files.download('.')).bytes();
  const left = async () => (await own.exec(['pgrep', '-cx', 'bash|sh|tar'])).stdout;
  await expect.poll(left, { timeout: 20_000 }).toBe('0\n');
  await own.delete();
});
