import { expect, test } from 'vitest';
import { FilesystemService } from './filesystem-service.ts';
import type { Call, Method } from './rpc.ts';

test('a list ends with its caller, however much there is to look at', async () => {
  const leaving = new AbortController();
  let looks = 0;
  const parts = {
    accounts: { userOf: async () => ({ name: 'root', uid: 0, gid: 0, home: '/root' }) },
    entries: {
      find: async () => ({ type: 'directory' }),
      of: async () => {
        looks++;
        if (looks === 20) leaving.abort(new Error('left'));
        return {};
      },
    },
    files: { list: async () => ({ items: Array.from({ length: 1_000 }, () => ({})), nextCursor: 'more' }) },
  };
  const service = new FilesystemService(parts as unknown as ConstructorParameters<typeof FilesystemService>[0]);
  const list = service.methods()['ListDir'] as Method & { kind: 'unary' };
  const call = { signal: leaving.signal, user: undefined } as unknown as Call;
  await expect(list.run(call, { path: '/', depth: 1 })).rejects.toThrow('left');
  expect(looks).toBeLessThan(40);
});
