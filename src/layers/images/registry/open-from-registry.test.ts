/** A registry that misbehaves in every way, on loopback: who is asked, what is shown to whom, and what is done about the answers. */
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type BuiltImage, buildImage, sha256 } from '../../../../test/support/image-builder.ts';
import { buildTar } from '../../../../test/support/tar-builder.ts';
import { defaultImageLimits } from '../image-limits.ts';
import type { RegistryCredentials } from '../image-source.ts';
import { parseChallenges } from './authorization.ts';
import { BlobCache } from './blob-cache.ts';
import { redirected } from './http-get.ts';
import { openFromRegistry } from './open-from-registry.ts';

const platform = { os: 'linux', architecture: process.arch === 'x64' ? 'amd64' : process.arch };
const credentials: RegistryCredentials = { username: 'me', password: 'secret' };
const basicOfMe = `Basic ${Buffer.from('me:secret').toString('base64')}`;
const image = buildImage([buildTar([{ name: 'file', content: 'content' }])]);
const layerDigest = JSON.parse(image.manifest.toString()).layers[0].digest as string;

/** True when the request is answered. */
type Rule = (request: IncomingMessage, response: ServerResponse, host: string) => boolean;

let home: string;
let closing: (() => Promise<void>)[];

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'atoll-registry-'));
  closing = [];
});
afterEach(async () => {
  for (const close of closing) await close();
  await rm(home, { recursive: true, force: true });
});

/** Serves the image after the rule has had its say; remembers who showed what. */
async function serve(rule: Rule = () => false, served: BuiltImage = image) {
  const seen: { readonly path: string; readonly authorization: string | undefined }[] = [];
  let host = '';
  const server = createServer((request, response) => {
    const path = new URL(request.url!, 'http://x').pathname;
    seen.push({ path, authorization: request.headers.authorization });
    if (rule(request, response, host)) return;
    const blob = served.blobs.get(path.split('/').at(-1)!);
    if (path === '/v2/' || path.startsWith('/v2/some/name/manifests/')) response.end(served.manifest);
    else if (blob !== undefined) response.end(blob);
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  closing.push(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return { host, seen };
}

async function pull(
  host: string,
  options: {
    version?: string;
    credentials?: RegistryCredentials;
    signal?: AbortSignal;
    allowedHosts?: readonly string[];
  } = {},
) {
  const { version = ':tag', signal, allowedHosts = ['127.0.0.1'] } = options;
  const source = { kind: 'registry' as const, reference: `${host}/some/name${version}` };
  const opened = await openFromRegistry(
    options.credentials === undefined ? source : { ...source, credentials: options.credentials },
    {
      limits: defaultImageLimits,
      platform,
      cacheDirectory: join(home, 'cache'),
      rules: { allowedHosts },
      signal,
      onProgress: undefined,
    },
  );
  await opened.close();
  return opened;
}

const unauthorized = (response: ServerResponse, challenge: string) => {
  response.writeHead(401, { 'www-authenticate': challenge }).end();
  return true;
};

test('an image is pulled without a name, with a password, and with a token that the password is exchanged for', async () => {
  const open = await serve();
  expect((await pull(open.host, { credentials })).digest).toBe(image.manifestDigest);
  // Nobody asked for it.
  expect(open.seen.every(({ authorization }) => authorization === undefined)).toBe(true);

  const basic = await serve((request, response) =>
    request.headers.authorization === basicOfMe ? false : unauthorized(response, 'Basic realm="x"'),
  );
  expect((await pull(basic.host, { credentials })).digest).toBe(image.manifestDigest);
  await expect(pull(basic.host)).rejects.toMatchObject({ code: 'registry_denied' });

  const bearer = await serve((request, response, host) => {
    const url = new URL(request.url!, 'http://x');
    if (url.pathname === '/token') {
      expect(url.searchParams.get('scope')).toBe('repository:some/name:pull');
      expect(url.searchParams.get('service')).toBe('the, service');
      response.end(JSON.stringify({ token: request.headers.authorization === basicOfMe ? 'good' : 'bad' }));
      return true;
    }
    if (request.headers.authorization === 'Bearer good') return false;
    return unauthorized(response, `Bearer realm="http://${host}/token",service="the, service",scope="ignored"`);
  });
  expect((await pull(bearer.host, { credentials })).layers).toHaveLength(1);
  await expect(pull(bearer.host)).rejects.toMatchObject({ code: 'registry_denied' });
});

test('a password is shown to no other host: not by a redirect, and not to a token service that a registry names', async () => {
  const other = await serve();
  const redirecting = await serve((request, response) => {
    if (request.headers.authorization !== basicOfMe) return unauthorized(response, 'Basic realm="x"');
    if (!request.url!.includes('/blobs/')) return false;
    response.writeHead(307, { location: `http://${other.host}${request.url}` }).end();
    return true;
  });
  await expect(pull(redirecting.host, { credentials })).rejects.toMatchObject({ code: 'registry_denied' });
  const naming = await serve((_, response) => unauthorized(response, `Bearer realm="http://${other.host}/token"`));
  await expect(pull(naming.host, { credentials })).rejects.toMatchObject({ code: 'registry_denied' });
  expect(other.seen).toEqual([]);

  // The control: a redirect that stays is followed.
  const staying = await serve((request, response) => {
    if (!request.url!.includes('/blobs/') || request.url!.includes('moved')) return false;
    response.writeHead(307, { location: `/moved/${request.url!.split('/').at(-1)}` }).end();
    return true;
  });
  expect((await pull(staying.host)).layers).toHaveLength(1);
  const circling = await serve((request, response) => {
    response.writeHead(302, { location: request.url! }).end();
    return true;
  });
  await expect(pull(circling.host)).rejects.toMatchObject({ code: 'registry_unavailable' });
});

test('a registry that only this machine reaches is asked where the operator names it: by address, by name, and as a token service', async () => {
  const hidden = await serve();
  const port = hidden.host.split(':')[1]!;
  const byName = `localhost:${port}`;
  const closed = { code: 'registry_denied', message: expect.stringContaining('ATOLL_PRIVATE_HOSTS') };
  for (const host of [hidden.host, byName, `[::ffff:127.0.0.1]:${port}`, `127.1.1.1:${port}`]) {
    await expect(pull(host, { allowedHosts: [] }), host).rejects.toMatchObject(closed);
  }
  // One that is named leads to one that is not.
  const naming = await serve((_, response) => unauthorized(response, `Bearer realm="https://${byName}/token"`));
  await expect(pull(naming.host)).rejects.toMatchObject(closed);
  expect(hidden.seen).toEqual([]);

  // The control: the same registry, named.
  expect((await pull(hidden.host, { allowedHosts: ['127.0.0.1'] })).digest).toBe(image.manifestDigest);
  expect((await pull(byName, { allowedHosts: ['localhost'] })).digest).toBe(image.manifestDigest);
  expect(hidden.seen.length).toBeGreaterThan(0);
});

test('where a redirect may lead', () => {
  const leads = (from: string, to: string) => {
    try {
      return redirected(new URL(from), to).href;
    } catch {
      return 'refused';
    }
  };
  expect(leads('https://a.example/x', 'https://b.example/y')).toBe('https://b.example/y');
  expect(leads('https://a.example/x', '/y')).toBe('https://a.example/y');
  expect(leads('http://a.example/x', 'https://a.example/y')).toBe('https://a.example/y');
  expect(leads('https://a.example/x', 'http://a.example/y')).toBe('refused');
  expect(leads('http://a.example/x', 'http://b.example/y')).toBe('refused');
  expect(leads('http://a.example/x', 'http://a.example:81/y')).toBe('refused');
  expect(leads('http://a.example/x', 'https://b.example/y')).toBe('refused');
  expect(leads('https://a.example/x', 'file:///etc/passwd')).toBe('refused');
  expect(leads('https://a.example/x', 'https://user:word@b.example/')).toBe('refused');
});

test('challenges are taken apart as they come', () => {
  expect(parseChallenges('Basic realm="a, b", Bearer realm="https://c/\\"d", scope=x')).toEqual([
    { scheme: 'basic', parameters: new Map([['realm', 'a, b']]) },
    {
      scheme: 'bearer',
      parameters: new Map([
        ['realm', 'https://c/"d'],
        ['scope', 'x'],
      ]),
    },
  ]);
  expect(parseChallenges('')).toEqual([]);
  expect(parseChallenges('=="",,=')).toEqual([]);
});

test('what is not what its digest says is refused and not kept', async () => {
  const lying = await serve((request, response) => {
    if (!request.url!.includes(layerDigest)) return false;
    response.end(Buffer.alloc(image.blobs.get(layerDigest)!.byteLength));
    return true;
  });
  await expect(pull(lying.host)).rejects.toMatchObject({ code: 'image_refused' });
  const long = await serve((request, response) => {
    if (!request.url!.includes(layerDigest)) return false;
    response.end(Buffer.alloc(10_000_000));
    return true;
  });
  await expect(pull(long.host)).rejects.toMatchObject({ code: 'image_refused' });
  expect((await readdir(join(home, 'cache'))).filter((name) => name.includes(layerDigest.slice(7)))).toEqual([]);
  expect((await readdir(join(home, 'cache'))).filter((name) => name.startsWith('partial-'))).toEqual([]);
  const { host } = await serve();
  await expect(pull(host, { version: `@${sha256(Buffer.from('other'))}` })).rejects.toMatchObject({
    code: 'image_refused',
  });
  expect((await pull(host, { version: `@${image.manifestDigest}` })).digest).toBe(image.manifestDigest);
});

test('a registry that fails for a while is asked again, and one that goes on failing is told as such', async () => {
  let failures = 2;
  const shaky = await serve((request, response) => {
    if (!request.url!.includes(layerDigest) || failures-- <= 0) return false;
    if (failures === 1) response.writeHead(503).end();
    else response.destroy();
    return true;
  });
  expect((await pull(shaky.host)).layers).toHaveLength(1);
  const failing = await serve((_, response) => {
    response.writeHead(500).end();
    return true;
  });
  await expect(pull(failing.host)).rejects.toMatchObject({ code: 'registry_unavailable' });
  const silent = await serve(() => true);
  await expect(pull(silent.host, { signal: AbortSignal.timeout(1_500) })).rejects.toThrow(/timeout/i);
});

test('a list of manifests is followed to the one for the platform', async () => {
  const other = buildImage([buildTar([{ name: 'x' }])], { architecture: 'other' });
  const descriptor = ({ manifest, manifestDigest: digest }: BuiltImage, architecture: string) => ({
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    digest,
    size: manifest.byteLength,
    platform: { os: 'linux', architecture },
  });
  const list =
    (manifests: readonly object[]): Rule =>
    (request, response) => {
      const version = request.url!.split('/').at(-1);
      if (version === 'tag') response.end(JSON.stringify({ schemaVersion: 2, manifests }));
      else if (version === other.manifestDigest) response.end(other.manifest);
      else return false;
      return true;
    };
  const both = await serve(list([descriptor(other, 'other'), descriptor(image, platform.architecture)]));
  expect((await pull(both.host)).digest).toBe(image.manifestDigest);
  const one = await serve(list([descriptor(other, 'other')]));
  await expect(pull(one.host)).rejects.toMatchObject({
    code: 'image_refused',
    details: { available: ['linux/other'] },
  });
  const looping = await serve(list([{ ...descriptor(image, platform.architecture), size: 5 * 1024 * 1024 }]));
  await expect(pull(looping.host)).rejects.toMatchObject({ code: 'image_refused' });
});

test('the cache stays within its bound and keeps what may be in use', async () => {
  const directory = join(home, 'bounded');
  const cache = new BlobCache({ directory, bytesMax: 150 });
  const put = async (bytes: Buffer, usedAgoMs: number) => {
    const blob = { mediaType: '', digest: sha256(bytes), size: bytes.byteLength, platform: undefined, annotations: {} };
    await cache.ensure(blob, async function* () {
      yield bytes;
    });
    const used = new Date(Date.now() - usedAgoMs);
    await utimes(join(directory, blob.digest.replace(':', '-')), used, used);
    return blob.digest.replace(':', '-');
  };
  const hour = 3_600_000;
  await put(Buffer.alloc(100, 1), 5 * hour);
  const newer = await put(Buffer.alloc(100, 2), 2 * hour);
  await writeFile(join(directory, 'partial-old'), '');
  await utimes(join(directory, 'partial-old'), 0, 0);
  await cache.trim();
  expect(await readdir(directory)).toEqual([newer]);
  const inUse = await put(Buffer.alloc(200, 3), 0);
  await cache.trim();
  expect(await readdir(directory)).toEqual([inUse]);
});
