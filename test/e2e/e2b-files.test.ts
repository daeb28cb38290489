/** Files through the official E2B SDK: their bytes, what they are, watches, and addresses that are signed. */
import { FilesystemEventType, type Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { agentHeaders, type E2bRig, openE2b } from '../support/e2b-rig.ts';

let rig: E2bRig;
let sandbox: Sandbox;
const limitMs = 120_000;
const patience = { timeout: 30_000, interval: 50 };

beforeAll(async () => {
  rig = await openE2b();
  sandbox = rig.sandbox;
}, limitMs);
afterAll(() => rig?.close(), limitMs);

test(
  'what is written in any form is read in any form',
  async () => {
    const { files } = sandbox;
    const bytes = new Uint8Array(300_000).map((_, at) => (at * 7) % 256);
    expect(await files.write('text/ä b.txt', 'grün')).toMatchObject({
      name: 'ä b.txt',
      path: '/home/user/text/ä b.txt',
      type: 'file',
    });
    await files.write('blob', new Blob([bytes]));
    await files.write('stream', new Blob([bytes]).stream());
    await files.write('zipped', 'again '.repeat(10_000), { gzip: true });
    expect(await files.read('text/ä b.txt')).toBe('grün');
    expect(Buffer.from(await files.read('blob', { format: 'bytes' })).equals(bytes)).toBe(true);
    expect(Buffer.from(await (await files.read('stream', { format: 'blob' })).arrayBuffer()).equals(bytes)).toBe(true);
    expect(await files.read('zipped', { gzip: true })).toBe('again '.repeat(10_000));
    expect(await new Response(await files.read('zipped', { format: 'stream' })).text()).toHaveLength(60_000);

    await files.write('empty', '');
    expect(await files.read('empty')).toBe('');
    expect(await files.read('/proc/self/status')).toContain('Name:');
    await files.write('text/ä b.txt', 'anew');
    expect(await files.read('text/ä b.txt')).toBe('anew');
    await expect(files.read('nowhere')).rejects.toMatchObject({ name: 'FileNotFoundError' });
    await expect(files.read('text')).rejects.toThrow(/is a directory/);
    await expect(files.write('text', 'x')).rejects.toThrow();
  },
  limitMs,
);

test(
  'many files go in one request, and belong to whom they are written for, wherever that is',
  async () => {
    const { files } = sandbox;
    const written = await files.write([
      { path: 'many/one', data: '1' },
      { path: '/opt/made/by/agent', data: '2' },
    ]);
    expect(written.map(({ path }) => path)).toEqual(['/home/user/many/one', '/opt/made/by/agent']);
    const owners = await sandbox.commands.run('stat -c "%U:%G %a" many many/one /opt/made /opt/made/by/agent /opt');
    expect(owners.stdout.split('\n')).toEqual([
      'user:user 755',
      'user:user 644',
      'user:user 755',
      'user:user 644',
      'root:root 755',
      '',
    ]);
    await files.write('/tmp/of-root', 'x', { user: 'root' });
    expect(await files.getInfo('/tmp/of-root')).toMatchObject({ owner: 'root', group: 'root' });
    await expect(files.write('x', 'y', { user: 'nobody-here' })).rejects.toMatchObject({ name: 'AuthenticationError' });
  },
  limitMs,
);

test(
  'directories are made, listed, moved and removed',
  async () => {
    const { files } = sandbox;
    expect(await files.makeDir('tree/a/b')).toBe(true);
    expect(await files.makeDir('tree/a/b')).toBe(false);
    await files.write('tree/a/b/deep', '1');
    await files.write('tree/a-b', '2');
    await sandbox.commands.run('ln -s a-b tree/link; ln -s nowhere tree/broken; ln -s a tree/way; chmod 1777 tree/a');
    const listed = async (depth: number) => (await files.list('tree', { depth })).map(({ path }) => path.slice(16));
    expect(await listed(1)).toEqual(['a', 'a-b', 'link', 'way']);
    expect(await listed(3)).toEqual(['a', 'a/b', 'a/b/deep', 'a-b', 'link', 'way']);
    expect((await files.list('tree/way')).map(({ path }) => path)).toEqual(['/home/user/tree/way/b']);
    await expect(files.list('tree/a-b')).rejects.toMatchObject({ name: 'InvalidArgumentError' });
    await expect(files.list('nowhere')).rejects.toMatchObject({ name: 'FileNotFoundError' });

    expect(await files.getInfo('tree/link')).toMatchObject({
      ...{ name: 'link', type: 'file', size: 3, mode: 0o644, permissions: 'Lrwxrwxrwx' },
      symlinkTarget: '/home/user/tree/a-b',
    });
    expect(await files.getInfo('tree/a')).toMatchObject({ type: 'dir', permissions: 'dtrwxrwxrwx', mode: 0o777 });
    expect((await files.getInfo('tree/a-b')).modifiedTime?.getTime()).toBeGreaterThan(Date.now() - limitMs);
    expect([await files.exists('tree/link'), await files.exists('tree/none')]).toEqual([true, false]);

    expect(await files.rename('tree/a-b', 'moved/to/here')).toMatchObject({ path: '/home/user/moved/to/here' });
    await expect(files.rename('tree/a-b', 'x')).rejects.toMatchObject({ name: 'FileNotFoundError' });
    await files.remove('tree');
    await files.remove('tree');
    expect(await files.exists('tree')).toBe(false);
  },
  limitMs,
);

test(
  'metadata is kept with a file until it is written again',
  async () => {
    const { files } = sandbox;
    const metadata = { author: 'me', note: 'two words' };
    expect(await files.write('labelled', '1', { metadata })).toMatchObject({ metadata });
    expect((await files.getInfo('labelled')).metadata).toEqual(metadata);
    const inList = (await files.list('.')).find(({ name }) => name === 'labelled');
    expect(inList?.metadata).toEqual(metadata);
    // They are extended attributes; others of a file are not shown as metadata.
    const python =
      "import os; os.setxattr('labelled', 'user.other', b'x'); print(os.getxattr('labelled', 'user.e2b.note'))";
    expect((await sandbox.commands.run(`python3 -c "${python}"`)).stdout).toBe("b'two words'\n");
    expect((await files.getInfo('labelled')).metadata).toEqual(metadata);
    // They are labels of the platform's own API too.
    const own = await rig.platform.client.sandboxes.connect(sandbox.sandboxId);
    const path = '/home/user/labelled';
    expect(await own.files.labels(path)).toEqual({ 'e2b.author': 'me', 'e2b.note': 'two words', other: 'x' });
    await own.files.setLabels(path, { 'e2b.note': 'new' }, { prefix: 'e2b.' });
    expect(await own.files.labels(path)).toEqual({ 'e2b.note': 'new', other: 'x' });
    expect((await files.getInfo('labelled')).metadata).toEqual({ note: 'new' });
    await files.write('labelled', '2');
    expect((await files.getInfo('labelled')).metadata ?? {}).toEqual({});
    await expect(files.write('labelled', '3', { metadata: { big: 'x'.repeat(5_000) } })).rejects.toThrow(/4096/);
  },
  limitMs,
);

test(
  'a watch tells what happens below a directory',
  async () => {
    const { files } = sandbox;
    await files.makeDir('watched');
    await files.write('watched/old', '1');
    const seen: string[] = [];
    const entries: unknown[] = [];
    const watch = await files.watchDir(
      'watched',
      ({ type, name, entry }) => {
        seen.push(`${type} ${name}`);
        if (entry !== undefined) entries.push(entry.path);
      },
      { recursive: true, includeEntry: true },
    );
    await files.write('watched/old', '2');
    await files.write('watched/new/deep', '3');
    await files.rename('watched/old', 'watched/other');
    await files.remove('watched/other');
    await expect.poll(() => seen, patience).toContain(`${FilesystemEventType.REMOVE} other`);
    await watch.stop();
    for (const event of [
      'write old',
      'create new',
      'create new/deep',
      'write new/deep',
      'rename old',
      'create other',
    ]) {
      expect(seen).toContain(event);
    }
    expect(entries).toContain('/home/user/watched/new/deep');
    await expect(files.watchDir('nowhere', () => {})).rejects.toMatchObject({ name: 'FileNotFoundError' });
  },
  limitMs,
);

test(
  'events of a watch are fetched by those who hold no stream',
  async () => {
    const call = async (method: string, body: unknown) => {
      const answer = await fetch(`${rig.platform.server.url}/filesystem.Filesystem/${method}`, {
        method: 'POST',
        headers: { ...agentHeaders(sandbox), 'Content-Type': 'application/json' },
        body: JSON.stringify(body),
      });
      return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
    };
    await sandbox.files.makeDir('fetched');
    const { watcherId } = (await call('CreateWatcher', { path: 'fetched' })).body;
    await sandbox.files.write('fetched/file', 'x');
    const events: unknown[] = [];
    const fetchMore = async () => {
      events.push(...((await call('GetWatcherEvents', { watcherId })).body['events'] as unknown[]));
      return events;
    };
    await expect.poll(fetchMore, patience).toContainEqual({ name: 'file', type: 'EVENT_TYPE_WRITE' });
    expect((await call('RemoveWatcher', { watcherId })).body).toEqual({});
    expect((await call('GetWatcherEvents', { watcherId })).status).toBe(404);
  },
  limitMs,
);

test(
  'whoever has a signed address may use it for what it was made for, until it expires',
  async () => {
    const path = 'signed/file.txt';
    const upload = await sandbox.uploadUrl(path, { useSignatureExpiration: 600 });
    const form = new FormData();
    form.append('file', new Blob(['sent']), 'file.txt');
    const sent = await fetch(upload, { method: 'POST', body: form });
    expect([sent.status, await sent.json()]).toMatchObject([200, [{ path: '/home/user/signed/file.txt' }]]);

    const download = await sandbox.downloadUrl(path);
    const answer = await fetch(download);
    expect([answer.status, await answer.text()]).toEqual([200, 'sent']);
    const refused = async (url: string, init: RequestInit = {}) => {
      const response = await fetch(url, init);
      return [response.status, ((await response.json()) as { message: string }).message];
    };
    expect((await refused(download, { method: 'POST', body: form }))[0]).toBe(401);
    expect((await refused(download.replace('file.txt', 'other.txt')))[0]).toBe(401);
    const expired = await sandbox.downloadUrl(path, { useSignatureExpiration: -10 });
    expect(await refused(expired)).toEqual([401, 'signature is already expired']);
    // With the sandbox named, the reasons are told apart.
    const { 'X-Access-Token': _, ...named } = agentHeaders(sandbox);
    const bare = download.replace(/&?signature=[^&]*/, '');
    expect(await refused(bare, { headers: named })).toEqual([401, 'missing signature query parameter']);
    const wrong = download.replace(/signature=[^&]*/, 'signature=v1_x');
    expect(await refused(wrong, { headers: named })).toEqual([401, 'invalid signature']);
  },
  limitMs,
);

test(
  'a file is read in parts, only if it has changed, and from pages of any origin',
  async () => {
    await sandbox.files.write('parts', '0123456789');
    const url = `${rig.platform.server.url}/files?path=parts`;
    const get = (headers: Record<string, string>, method = 'GET') =>
      fetch(url, { method, headers: { ...agentHeaders(sandbox), 'Accept-Encoding': 'identity', ...headers } });
    const part = await get({ Range: 'bytes=2-4' });
    expect([part.status, part.headers.get('content-range'), await part.text()]).toEqual([206, 'bytes 2-4/10', '234']);
    expect((await get({ Range: 'bytes=20-' })).status).toBe(416);
    const head = await get({}, 'HEAD');
    expect([head.status, head.headers.get('content-length')]).toEqual([200, '10']);
    expect((await get({ 'If-None-Match': head.headers.get('etag')! })).status).toBe(304);
    expect((await get({ 'Accept-Encoding': 'identity;q=0, br' })).status).toBe(406);
    const preflight = await fetch(url, {
      method: 'OPTIONS',
      headers: { ...agentHeaders(sandbox), Origin: 'https://example.com', 'Access-Control-Request-Method': 'POST' },
    });
    expect([preflight.status, preflight.headers.get('access-control-allow-origin')]).toEqual([204, '*']);
    const compose = await fetch(`${rig.platform.server.url}/files/compose`, {
      method: 'POST',
      headers: { ...agentHeaders(sandbox), 'Content-Type': 'application/json' },
      body: JSON.stringify({ source_paths: ['parts', 'empty'], destination: 'composed' }),
    });
    expect(compose.status).toBe(200);
    expect(await sandbox.files.read('composed')).toBe('0123456789');
    expect(await sandbox.files.exists('parts')).toBe(false);
  },
  limitMs,
);
