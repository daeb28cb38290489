/** Which remotes a node talks to, and with which of them it shares credentials. Nothing is connected to here. */
import { expect, test } from 'vitest';
import { judgeRemote } from './remote-address.ts';

const judge = (url: string, options: { hasCredentials?: boolean; allowed?: readonly string[] } = {}) =>
  judgeRemote(url, {
    rules: { allowedHosts: options.allowed ?? [] },
    hasCredentials: options.hasCredentials ?? false,
  });

test('credentials go over https, and over http only to a host that an operator has allowed', async () => {
  const [plain, safe] = ['http://192.0.43.8/r.git', 'https://192.0.43.8/r.git'];
  await expect(judge(plain, { hasCredentials: true })).rejects.toMatchObject({ code: 'invalid_request' });
  expect(await judge(plain)).toMatchObject({ protocol: 'http', url: plain });
  expect(await judge(safe, { hasCredentials: true })).toMatchObject({ protocol: 'https', url: safe });
  expect(await judge(plain, { hasCredentials: true, allowed: ['192.0.43.8'] })).toMatchObject({ protocol: 'http' });
});

test('what only the node reaches is refused in every clothing, and allowed by name alone', async () => {
  for (const host of [
    '127.0.0.1',
    '10.1.2.3',
    '169.254.169.254',
    '[::1]',
    '[::ffff:10.1.2.3]',
    '[fe80::1]',
    '0.0.0.0',
  ]) {
    await expect(judge(`https://${host}/r.git`), host).rejects.toMatchObject({ code: 'invalid_request' });
  }
  expect(await judge('https://10.1.2.3/r.git', { allowed: ['10.1.2.3'] })).toMatchObject({ resolve: null });
  const named = await judge('http://localhost:8080/r.git', { allowed: ['localhost'] });
  expect(named.resolve, 'the address that was judged is the one that is asked').toMatch(/^localhost:8080:/);
});

test('an address is a plain one of http, without credentials, query or tricks', async () => {
  for (const url of [
    ...[
      'ssh://h/r.git',
      'file:///etc',
      'ext::sh -c id',
      'https:/h/r',
      'https://u:p@192.0.43.8/r',
      'https://192.0.43.8/r?x=1',
    ],
    ...['https://192.0.43.8/r#x', `https://192.0.43.8/${'x'.repeat(2_000)}`, 'nothing', 'https://192.0.43.8/a\nb'],
  ]) {
    await expect(judge(url), url).rejects.toMatchObject({ code: 'invalid_request' });
  }
});
