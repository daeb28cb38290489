/** The official E2B SDK in domain mode: TLS, a wildcard name, and nothing else that it is told. */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { Platform } from '../support/platform.ts';

const run = promisify(execFile);
const limitMs = 180_000;
const domain = 'atoll.test';

test('with a domain and a certificate the SDK needs nothing but the domain, whatever it does', {
  timeout: limitMs,
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), 'atoll-tls-'));
  let platform: Platform | undefined;
  try {
    const cert = join(directory, 'cert.pem');
    const key = join(directory, 'key.pem');
    const names = `subjectAltName=DNS:${domain},DNS:*.${domain}`;
    await run('openssl', [
      ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
      ...['-subj', `/CN=${domain}`, '-addext', names, '-keyout', key, '-out', cert],
    ]);
    platform = await Platform.start({ serveOptions: ['--domain', domain, '--tls-cert', cert, '--tls-key', key] });
    expect(platform.server.url).toMatch(/^https:/);
    const { port } = new URL(platform.server.url);
    const { stdout } = await run(process.execPath, [join(import.meta.dirname, '../support/e2b-by-domain.ts')], {
      env: {
        ...process.env,
        NODE_EXTRA_CA_CERTS: cert,
        E2B_DOMAIN: `${domain}:${port}`,
        E2B_API_KEY: platform.key.replace('atoll_', 'e2b_'),
      },
    });
    const seen = JSON.parse(stdout) as { host: string };
    expect(seen.host).toMatch(new RegExp(`^8123-sbx[a-z0-9]{20}\\.${domain}:${port}$`));
    expect(seen).toMatchObject({
      isRunning: true,
      stdout: '42\n',
      read: 'by domain',
      killed: true,
      isRunningAfter: false,
    });
    expect(seen).toMatchObject({ unheard: { status: 502, body: { code: 502, port: 8_123 } } });
    expect(seen).toMatchObject({
      walked: {
        ...{ uploaded: 'sent', connected: true, listed: [1, 1], echoed: 'typed', stopped: true, screen: 'size 101' },
        ...{ watched: expect.arrayContaining(['write file']), currentBranch: 'main', state: 'paused' },
        ...{ forked: 'by domain', kept: 'by domain', metrics: 1, isBroken: true, metadata: { owner: 'me' } },
      },
    });
  } finally {
    await platform?.close();
    await rm(directory, { recursive: true, force: true });
  }
});
