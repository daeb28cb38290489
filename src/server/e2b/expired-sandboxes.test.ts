import { expect, test } from 'vitest';
import { FakeClock } from '../../../test/support/fake-clock.ts';
import { testId, testSandboxView } from '../../../test/support/fake-control.ts';
import { silentLogger } from '../../base/index.ts';
import type { Caller } from '../../control/index.ts';
import { PlatformError } from '../../protocol/index.ts';
import type { ControlPort } from '../control-port.ts';
import { ExpiredSandboxes } from './expired-sandboxes.ts';

const caller = (team: string, sandbox?: string): Caller => ({
  ...{ keyId: testId('key', 'a'), teamId: testId('team', team), userId: null, scopes: ['sandboxes:write'], name: 'a' },
  sandboxId: sandbox === undefined ? null : testId('sandbox', sandbox),
});

test('what has stopped and was to be killed is deleted, of teams that were seen, and one that cannot be keeps no other', async () => {
  const deleted: string[] = [];
  const asked: unknown[] = [];
  const [held, free] = [testId('sandbox', 'held'), testId('sandbox', 'free')];
  const control = {
    sandboxes: {
      list: async ({ teamId }: Caller, query: unknown) => {
        asked.push([teamId, query]);
        return { items: [held, free].map((id) => testSandboxView({ id })), nextCursor: null };
      },
      delete: async (_caller: Caller, id: string) => {
        if (id === held) throw new PlatformError('lease_held', 'Somebody holds it.');
        deleted.push(id);
      },
    },
  } as unknown as ControlPort;
  const expired = new ExpiredSandboxes({ control, logger: silentLogger, timers: new FakeClock() });
  try {
    await expired.tick();
    expect(asked).toEqual([]);
    expired.seen(caller('other', 'a'));
    expired.seen(caller('a'));
    await expired.tick();
    const query = { state: ['stopped'], metadata: ['atoll.e2b.onTimeout=kill'], limit: 100 };
    expect(asked).toEqual([[testId('team', 'a'), query]]);
    expect(deleted).toEqual([free]);
  } finally {
    await expired.close();
  }
});
