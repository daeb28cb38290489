/** Bodies that are bytes, in both directions, over real HTTP. */
import { request as httpRequest } from 'node:http';
import { expect, test } from 'vitest';
import { Sandbox } from '../src/sdk/index.ts';
import { goodKey, testId } from './support/fake-control.ts';
import { errorOf, openHttpRig } from './support/http-rig.ts';

const sandboxId = testId('sandbox', 'a');
const content = `/v1/sandboxes/${sandboxId}/files/content`;
const at = (path: string) => `${content}?path=${encodeURIComponent(path)}`;

test('bytes go in and come out as they are, with size, etag and ranges', async () => {
  await using rig = await openHttpRig();
  const bytes = new Uint8Array(300_000).map((_, index) => index % 256);
  const put = await rig.request(at('/a\nb'), { method: 'PUT', body: bytes });
  expect(put.status).toBe(200);
  expect(await put.json()).toMatchObject({ path: '/a\nb', sizeBytes: 300_000, mode: '644', type: 'file' });
  const whole = await rig.request(at('/a\nb'));
  expect(whole.headers.get('content-length')).toBe('300000');
  expect(whole.headers.get('etag')).toBe('"a.300000"');
  expect(new Uint8Array(await whole.arrayBuffer())).toEqual(bytes);
  const part = await rig.request(at('/a\nb'), { headers: { range: 'bytes=10-19' } });
  expect(part.status).toBe(206);
  expect(part.headers.get('content-range')).toBe('bytes 10-19/300000');
  expect(new Uint8Array(await part.arrayBuffer())).toEqual(bytes.subarray(10, 20));
  const behind = await errorOf(await rig.request(at('/a\nb'), { headers: { range: 'bytes=300000-' } }));
  expect(behind).toMatchObject({ status: 416, code: 'range_not_satisfiable', details: { sizeBytes: 300_000 } });
  const head = await rig.request(at('/a\nb'), { method: 'HEAD' });
  expect([head.status, head.headers.get('content-length'), await head.text()]).toEqual([200, '300000', '']);
});

test('If-Match takes an etag here, If-None-Match that there is none', async () => {
  await using rig = await openHttpRig();
  const put = (headers: Record<string, string>, body = 'x') => rig.request(at('/f'), { method: 'PUT', body, headers });
  expect((await put({ 'If-None-Match': '*' })).status).toBe(200);
  expect(await errorOf(await put({ 'If-None-Match': '*' }))).toMatchObject({ status: 409, code: 'file_exists' });
  expect((await put({ 'If-Match': '"a.1"' }, 'longer')).status).toBe(200);
  expect(await errorOf(await put({ 'If-Match': '"a.1"' }))).toMatchObject({ status: 412, code: 'file_changed' });
  expect((await put({ 'If-Match': '"a", "b"' })).status).toBe(400);
  expect((await put({ 'If-Match': '"a.6"', 'If-None-Match': '*' })).status).toBe(400);
});

test('a refusal before the body is read reaches a caller that is still sending', async () => {
  await using rig = await openHttpRig();
  rig.control.fakeFiles.onWrite = async () => {
    await rig.control.fakeFiles.port.remove({} as never, sandboxId, {}, { path: '/none', recursive: 'false' });
  };
  const answer = await rig.request(at('/x'), { method: 'PUT', body: new Uint8Array(20 * 1024 * 1024) });
  expect(await errorOf(answer)).toMatchObject({ code: 'file_not_found' });
  rig.control.fakeFiles.onWrite = async () => {};
  expect((await rig.request(at('/x'), { method: 'PUT', body: 'after' })).status).toBe(200);
});

test('a body that breaks off is not taken for a whole one', async () => {
  await using rig = await openHttpRig();
  const failed = Promise.withResolvers<void>();
  const { port } = rig.control.fakeFiles;
  const begun = Promise.withResolvers<void>();
  rig.control.fakeFiles.onWrite = async () => begun.resolve();
  const write = port.write;
  Object.assign(port, {
    write: (...given: Parameters<typeof write>) =>
      write(...given).catch((error: unknown) => {
        failed.resolve();
        throw error;
      }),
  });
  const request = httpRequest(`${rig.url}${at('/cut')}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${goodKey}`, 'content-length': '1000' },
  });
  request.on('error', () => {});
  request.write('a part');
  await begun.promise;
  request.destroy();
  await failed.promise;
  expect(rig.control.fakeFiles.contents.has('/cut')).toBe(false);
});

test('content that fails midway cuts the connection', async () => {
  await using rig = await openHttpRig();
  rig.control.fakeFiles.contents.set('/f', Buffer.alloc(10));
  rig.control.fakeFiles.onRead = async function* () {
    yield Buffer.alloc(5);
    throw new Error('lost');
  };
  const whole = rig.request(at('/f')).then((response) => response.arrayBuffer());
  await expect(whole).rejects.toThrow();
});

test('a slow reader holds the content back', async () => {
  await using rig = await openHttpRig();
  rig.control.fakeFiles.contents.set('/f', Buffer.alloc(0));
  let asked = 0;
  const total = 400;
  rig.control.fakeFiles.onRead = async function* () {
    for (; asked < total; asked++) yield Buffer.alloc(256 * 1024);
  };
  Object.assign(rig.control.fakeFiles.port, {
    read: async () => {
      const { fakeFileEntry } = await import('./support/fake-files.ts');
      return { entry: fakeFileEntry('/f', 0), offset: 0, length: null, bytes: rig.control.fakeFiles.onRead!('/f') };
    },
  });
  const response = await rig.request(at('/f'));
  const reader = response.body!.getReader();
  await reader.read();
  // Whatever fits into buffers on the way has been asked for; most of it has not.
  for (let turn = 0; turn < 200; turn++) await new Promise(setImmediate);
  expect(asked).toBeLessThan(total / 2);
  let bytes = 256 * 1024;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.byteLength;
  }
  expect(asked).toBe(total);
  expect(bytes).toBeGreaterThanOrEqual(total * 256 * 1024);
});

test('the SDK writes text, bytes and streams, reads ranges, and names what is missing', async () => {
  await using rig = await openHttpRig();
  const { files } = await Sandbox.connect(sandboxId, { client: rig.client() });
  await files.write('/t', 'zwölf');
  expect(await files.readText('/t')).toBe('zwölf');
  await files.append('/t', '!');
  async function* chunks() {
    for (const part of ['a', 'b', 'c']) yield Buffer.from(part);
  }
  await files.write('/s', chunks());
  expect(await files.readText('/s')).toBe('abc');
  expect(await files.readText('/s', { offset: -2 })).toBe('bc');
  expect(await files.readText('/s', { offset: 1, length: 1 })).toBe('b');
  expect(await files.exists('/s')).toBe(true);
  expect(await files.exists('/none')).toBe(false);
  await expect(files.read('/none')).rejects.toMatchObject({ code: 'file_not_found' });
  expect((await files.stat('/s')).modifiedAt).toEqual(new Date(1_000));
});

test('a stream is sent once, also where a repeat would be allowed', async () => {
  await using rig = await openHttpRig();
  const { files } = await Sandbox.connect(sandboxId, { client: rig.client() });
  let sent = 0;
  rig.control.fakeFiles.onWrite = async () => {
    sent++;
    const { PlatformError } = await import('../src/protocol/index.ts');
    throw new PlatformError('sandbox_unavailable', 'Later.');
  };
  async function* chunks() {
    yield Buffer.from('a');
  }
  await expect(files.write('/s', chunks())).rejects.toMatchObject({ code: 'sandbox_unavailable' });
  expect(sent).toBe(1);
});

test('a watch resolves when it is armed and hands out what comes', async () => {
  await using rig = await openHttpRig();
  const { files } = await Sandbox.connect(sandboxId, { client: rig.client() });
  const seen: unknown[] = [];
  for await (const event of await files.watch('.')) seen.push(event);
  expect(seen).toEqual([{ kind: 'created', path: '/workspace/a' }]);
});
