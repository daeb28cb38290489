import { expect, test } from 'vitest';
import type { SandboxId } from '../../../protocol/index.ts';
import type { ControlPort } from '../../control-port.ts';
import type { EnvdSandbox } from '../envd-handler.ts';
import { Accounts } from './accounts.ts';

const sandbox = { sandboxId: 'sbx00000000000000000001' as SandboxId } as EnvdSandbox;

/** Of a sandbox with these files. */
function accountsOf(texts: Readonly<Record<string, string>>): Accounts {
  const read = async (_: unknown, __: unknown, ___: unknown, { path }: { readonly path: string }) => ({
    bytes: [Buffer.from(texts[path] ?? '')],
  });
  return new Accounts({ read } as unknown as ControlPort['files']);
}

test('users and groups are those of the sandbox, and an id without a name is its number', async () => {
  const accounts = accountsOf({ '/etc/passwd': 'ada:x:7:8::/home/ada:/bin/sh\n', '/etc/group': 'math:x:8:\n' });
  expect(await accounts.userOf(sandbox, 'ada')).toEqual({ name: 'ada', uid: 7, gid: 8, home: '/home/ada' });
  await expect(accounts.userOf(sandbox, 'bob')).rejects.toMatchObject({ code: 'unauthenticated' });
  const names = await accounts.names(sandbox);
  expect([names.user(7), names.group(8), names.user(9)]).toEqual(['ada', 'math', '9']);
});

test('a sandbox that fills the files with short lines has a bounded number of accounts, the first ones', async () => {
  const lines = (count: number) => Array.from({ length: count }, (_, index) => `u${index}:x:${index % 60_000}:1::/:`);
  const accounts = accountsOf({ '/etc/passwd': lines(50_000).join('\n'), '/etc/group': '' });
  expect(await accounts.userOf(sandbox, 'u4095')).toMatchObject({ uid: 4_095 });
  await expect(accounts.userOf(sandbox, 'u4096')).rejects.toMatchObject({ code: 'unauthenticated' });
});
