/** The rules of every table but the sandboxes', for store.contract.ts. */
import { describe, expect, test } from 'vitest';
import { newId } from '../../src/protocol/index.ts';
import type { Readers, Tables } from '../../src/store/index.ts';
import {
  eventRecord,
  exposureRecord,
  keyRecord,
  leaseHolder,
  operationRecord,
  sandboxRecord,
  webhookRecord,
} from '../support/records.ts';
import type { TestDatabase } from './store.contract.ts';

export function describeOtherTables(database: () => TestDatabase): void {
  /** A store with reports of what could not be read, and short ways to use it. */
  async function open() {
    const unreadable: string[] = [];
    const store = await database().open({ onUnreadable: (table, id) => unreadable.push(`${table} ${id}`) });
    const write = <Result>(work: (tables: Tables) => Promise<Result>) => store.transact(work);
    const read = <Result>(work: (tables: Readers) => Promise<Result>) => store.read(work);
    return { unreadable, write, read };
  }

  describe('exposed ports', () => {
    test('one is found by sandbox and port, listed by port, replaced and removed', async () => {
      const { write, read } = await open();
      const sandbox = sandboxRecord();
      const [high, low] = [9000, 80].map((port) =>
        exposureRecord({ sandboxId: sandbox.id, port, isPublic: port === 80 }),
      );
      await write(async ({ sandboxes, exposures }) => {
        await sandboxes.insert(sandbox);
        for (const record of [high!, low!]) await exposures.put(record);
      });
      expect(await read(({ exposures }) => exposures.find(low!))).toStrictEqual(low);
      expect(await read(({ exposures }) => exposures.find({ ...low!, port: 81 }))).toBeUndefined();
      expect(await read(({ exposures }) => exposures.list(sandbox.id))).toStrictEqual([low, high]);
      const changed = { ...low!, isPublic: false, tokenId: newId('token'), tokenHash: 'a'.repeat(64) };
      await write(({ exposures }) => exposures.put(changed));
      expect(await read(({ exposures }) => exposures.list(sandbox.id))).toStrictEqual([changed, high]);
      expect(await write(({ exposures }) => exposures.remove(changed))).toBe(true);
      expect(await write(({ exposures }) => exposures.remove(changed))).toBe(false);
      expect(await read(({ exposures }) => exposures.list(sandbox.id))).toStrictEqual([high]);
    });

    test('they stay when their sandbox changes, go with it, and there is none without one', async () => {
      const { write, read } = await open();
      const sandbox = sandboxRecord();
      const record = exposureRecord({ sandboxId: sandbox.id });
      await write(({ sandboxes }) => sandboxes.insert(sandbox));
      await write(({ exposures }) => exposures.put(record));
      await write(({ sandboxes }) => sandboxes.update({ ...sandbox, version: 2, metadata: { a: 'b' } }));
      expect(await read(({ exposures }) => exposures.find(record))).toStrictEqual(record);
      await write(({ sandboxes }) => sandboxes.remove(sandbox.id));
      expect(await read(({ exposures }) => exposures.find(record))).toBeUndefined();
      const orphan = write(({ exposures }) => exposures.put(record));
      await expect(orphan).rejects.toMatchObject({ code: 'internal' });
    });
  });

  describe('operations', () => {
    test('one is found by id and by the key of its team, and a key is used once per team', async () => {
      const { write, read } = await open();
      const [first, second] = [operationRecord({ key: 'k' }), operationRecord({ key: 'k', subjectId: null })];
      await write(async ({ operations }) => {
        await operations.insert(first);
        await operations.insert(second);
      });
      expect(await read(({ operations }) => operations.find(first.id))).toEqual(first);
      expect(await read(({ operations }) => operations.findByKey({ teamId: second.teamId, key: 'k' }))).toEqual(second);
      expect(await read(({ operations }) => operations.findByKey({ teamId: second.teamId, key: 'l' }))).toBeUndefined();
      const again = operationRecord({ teamId: first.teamId, key: 'k' });
      await expect(write(({ operations }) => operations.insert(again))).rejects.toMatchObject({ code: 'internal' });
    });

    test('of answers to one operation the first stays', async () => {
      const { write, read } = await open();
      const record = operationRecord();
      await write(({ operations }) => operations.insert(record));
      await write(({ operations }) => operations.finish({ id: record.id, finishedAtMs: 5, answer: '{"a":1}' }));
      await write(({ operations }) => operations.finish({ id: record.id, finishedAtMs: 6, answer: '{}' }));
      const finished = { ...record, finishedAtMs: 5, answer: '{"a":1}' };
      expect(await read(({ operations }) => operations.find(record.id))).toEqual(finished);
    });

    test('a removed one frees its key', async () => {
      const { write, read } = await open();
      const record = operationRecord();
      await write(({ operations }) => operations.insert(record));
      await write(({ operations }) => operations.remove(record.id));
      expect(await read(({ operations }) => operations.find(record.id))).toBeUndefined();
      await write(({ operations }) => operations.insert({ ...record, id: newId('operation') }));
    });

    test('one that was interrupted is adopted by one run only, a finished one by none', async () => {
      const { write, read } = await open();
      const record = operationRecord({ serverRun: 'old' });
      await write(({ operations }) => operations.insert(record));
      const takers = ['a', 'b', 'c'];
      const adopt = (to: string) => write(({ operations }) => operations.adopt({ id: record.id, from: 'old', to }));
      const taken = await Promise.all(takers.map(adopt));
      expect(taken.filter(Boolean)).toHaveLength(1);
      const run = takers[taken.indexOf(true)]!;
      expect(await read(({ operations }) => operations.find(record.id))).toMatchObject({ serverRun: run });
      await write(({ operations }) => operations.finish({ id: record.id, finishedAtMs: 1, answer: '1' }));
      const late = write(({ operations }) => operations.adopt({ id: record.id, from: run, to: 'late' }));
      expect(await late).toBe(false);
    });

    test('those started before a time are removed and counted', async () => {
      const { write, read } = await open();
      const records = [10, 20, 30].map((startedAtMs) => operationRecord({ startedAtMs }));
      await write(async ({ operations }) => {
        for (const record of records) await operations.insert(record);
      });
      expect(await write(({ operations }) => operations.removeStartedBefore(20))).toBe(1);
      expect(await write(({ operations }) => operations.removeStartedBefore(20))).toBe(0);
      expect(await read(({ operations }) => operations.find(records[0]!.id))).toBeUndefined();
      expect(await read(({ operations }) => operations.find(records[1]!.id))).toEqual(records[1]);
    });
  });

  describe('teams, users and keys', () => {
    test('teams and users are found and listed oldest first, users by team', async () => {
      const { write, read } = await open();
      const teams = [2, 1].map((createdAtMs) => ({
        id: newId('team'),
        name: `t${createdAtMs}`,
        createdAtMs,
        diskBytes: null,
      }));
      const user = { id: newId('user'), teamId: teams[0]!.id, name: 'u', createdAtMs: 1 };
      await write(async (tables) => {
        for (const team of teams) await tables.teams.insert(team);
        await tables.users.insert(user);
      });
      expect(await read((tables) => tables.teams.list())).toStrictEqual(teams.toReversed());
      expect(await read((tables) => tables.teams.find(teams[0]!.id))).toStrictEqual(teams[0]);
      expect(await read((tables) => tables.teams.find(newId('team')))).toBeUndefined();
      expect(await read(({ users }) => users.find(user.id))).toStrictEqual(user);
      expect(await read(({ users }) => users.find(newId('user')))).toBeUndefined();
      expect(await read(({ users }) => users.list(user.teamId))).toStrictEqual([user]);
      expect(await read(({ users }) => users.list(teams[1]!.id))).toEqual([]);
    });

    test('a key is found by id and hash, listed by team, and revoked once', async () => {
      const { write, read } = await open();
      const record = keyRecord({ userId: newId('user'), sandboxId: newId('sandbox'), expiresAtMs: 9, scopes: [] });
      const other = keyRecord({ teamId: record.teamId, createdAtMs: record.createdAtMs + 1 });
      await write(async ({ keys }) => {
        for (const key of [other, record, keyRecord()]) await keys.insert(key);
      });
      expect(await read(({ keys }) => keys.find(record.id))).toStrictEqual(record);
      expect(await read(({ keys }) => keys.findByHash(record.hash))).toStrictEqual(record);
      expect(await read(({ keys }) => keys.findByHash('unknown'))).toBeUndefined();
      expect(await read(({ keys }) => keys.list(record.teamId))).toStrictEqual([record, other]);
      await write(({ keys }) => keys.revoke({ id: record.id, revokedAtMs: 5 }));
      await write(({ keys }) => keys.revoke({ id: record.id, revokedAtMs: 6 }));
      expect(await read(({ keys }) => keys.find(record.id))).toEqual({ ...record, revokedAtMs: 5 });
      const twin = keyRecord({ hash: record.hash });
      await expect(write(({ keys }) => keys.insert(twin))).rejects.toMatchObject({ code: 'internal' });
    });

    test('a key that cannot be read is left out and reported', async () => {
      const { unreadable, write, read } = await open();
      const [damaged, whole] = [keyRecord(), keyRecord()].map((key) => ({ ...key, teamId: sandboxRecord().teamId }));
      const teamId = whole!.teamId;
      await write(async ({ keys }) => {
        await keys.insert({ ...damaged!, teamId });
        await keys.insert(whole!);
      });
      await database().damage({ table: 'keys', column: 'scopes', idColumn: 'id', id: damaged!.id });
      expect(await read(({ keys }) => keys.list(teamId))).toEqual([whole]);
      expect(unreadable).toEqual([`keys ${damaged!.id}`]);
    });
  });

  describe('leases', () => {
    test('a lease is put, replaced, found by resource and by lease id, and removed', async () => {
      const { write, read } = await open();
      const teamId = newId('team');
      const holder = leaseHolder({ acknowledged: false });
      const first = { teamId, resource: newId('sandbox'), token: 1, holder };
      const second = { teamId, resource: 'name:deploy', token: 4, holder };
      const foreign = { teamId: newId('team'), resource: 'name:deploy', token: 9, holder: null };
      await write(async ({ leases }) => {
        for (const lease of [first, second, foreign]) await leases.put(lease);
      });
      expect(await read(({ leases }) => leases.find(foreign))).toStrictEqual(foreign);
      expect(await read(({ leases }) => leases.find({ teamId, resource: 'none' }))).toBeUndefined();
      const sameId = { teamId, leaseId: holder.leaseId };
      expect(await read(({ leases }) => leases.findByLeaseId(sameId))).toStrictEqual([second, first]);
      expect(await read(({ leases }) => leases.findByLeaseId({ ...sameId, teamId: foreign.teamId }))).toEqual([]);

      const released = { ...first, token: 2, holder: null };
      await write(({ leases }) => leases.put(released));
      expect(await read(({ leases }) => leases.find(first))).toStrictEqual(released);
      expect(await read(({ leases }) => leases.findByLeaseId(sameId))).toEqual([second]);
      await write(({ leases }) => leases.remove(second));
      expect(await read(({ leases }) => leases.find(second))).toBeUndefined();
      expect(await read(({ leases }) => leases.find(foreign))).toEqual(foreign);
    });

    test('held ones are listed, of one team or of all, without those that cannot be read', async () => {
      const { unreadable, write, read } = await open();
      const [a, b, c] = ['a', 'b', 'c'].map((name) => ({
        teamId: newId('team'),
        resource: `name:${name}`,
        token: 1,
        holder: name === 'b' ? null : leaseHolder(),
      }));
      await write(async ({ leases }) => {
        for (const lease of [a!, b!, c!]) await leases.put(lease);
      });
      expect(await read(({ leases }) => leases.listHeld(a!.teamId))).toEqual([a]);
      expect(await read(({ leases }) => leases.listHeld(b!.teamId))).toEqual([]);
      const all = await read(({ leases }) => leases.listHeld());
      expect(all.map((lease) => lease.resource).toSorted()).toEqual(['name:a', 'name:c']);
      await database().damage({ table: 'leases', column: 'holder', idColumn: 'resource', id: 'name:a' });
      expect(await read(({ leases }) => leases.listHeld())).toEqual([c]);
      expect(unreadable).toEqual(['leases name:a']);
    });
  });

  describe('events', () => {
    test('sequences have no gaps, whatever runs at once and whatever fails', async () => {
      const { write, read } = await open();
      const teamId = newId('team');
      const outcomes = await Promise.allSettled(
        Array.from({ length: 60 }, (_, index) =>
          write(async ({ events }) => {
            const event = await events.append(eventRecord({ teamId, data: { index } }));
            await events.append(eventRecord({ teamId, data: { index } }));
            if (index % 4 === 0) throw new Error('no');
            return event.sequence;
          }),
        ),
      );
      const list = await read(({ events }) => events.list({ teamId, after: 0, limit: 1000 }));
      expect(list.map((event) => event.sequence)).toEqual(Array.from({ length: 90 }, (_, index) => index + 1));
      for (const [index, outcome] of outcomes.entries()) {
        if (outcome.status === 'rejected') continue;
        expect(list[outcome.value - 1]?.data).toEqual({ index });
        expect(list[outcome.value]?.data).toEqual({ index }); // The two of one work stand together.
      }
      expect(await read(({ events }) => events.range())).toEqual({ first: 1, last: 90 });
    });

    test('they are listed by team and sandbox, in order, after a cursor, in pages', async () => {
      const { write, read } = await open();
      const { id: sandboxId, teamId } = sandboxRecord();
      const given = [
        eventRecord({ teamId, sandboxId, data: { deep: [{ a: null }] } }),
        eventRecord(),
        eventRecord({ teamId }),
        eventRecord({ teamId, sandboxId, kind: 'x', atMs: 1 }),
      ];
      const written = await write(async ({ events }) => {
        const records = [];
        for (const event of given) records.push(await events.append(event));
        return records;
      });
      expect(written).toStrictEqual(given.map((event, index) => ({ ...event, sequence: index + 1 })));
      const list = (query: { sandboxId?: typeof sandboxId; after: number; limit: number }) =>
        read(({ events }) => events.list({ teamId, ...query }));
      expect(await list({ after: 0, limit: 10 })).toStrictEqual([written[0], written[2], written[3]]);
      expect(await list({ after: 1, limit: 1 })).toEqual([written[2]]);
      expect(await list({ sandboxId, after: 0, limit: 10 })).toEqual([written[0], written[3]]);
      expect(await list({ sandboxId, after: 4, limit: 10 })).toEqual([]);
      const foreign = { teamId: newId('team'), sandboxId, after: 0, limit: 10 };
      expect(await read(({ events }) => events.list(foreign))).toEqual([]);
    });

    test('trimming keeps the newest, and the sequence goes on when none is left', async () => {
      const { write, read } = await open();
      const { teamId } = sandboxRecord();
      await write(async ({ events }) => {
        for (let i = 0; i < 10; i++) await events.append(eventRecord({ teamId }));
      });
      expect(await write(({ events }) => events.trim(20))).toBe(0);
      expect(await write(({ events }) => events.trim(4))).toBe(6);
      expect(await read(({ events }) => events.range())).toEqual({ first: 7, last: 10 });
      expect(await read(({ events }) => events.list({ teamId, after: 0, limit: 10 }))).toHaveLength(4);
      expect(await write(({ events }) => events.trim(0))).toBe(4);
      expect(await read(({ events }) => events.range())).toEqual({ first: 11, last: 10 });
      expect((await write(({ events }) => events.append(eventRecord({ teamId })))).sequence).toBe(11);
    });

    test('one that cannot be read is left out and reported, and the page is filled', async () => {
      const { unreadable, write, read } = await open();
      const { teamId } = sandboxRecord();
      await write(async ({ events }) => {
        for (let i = 0; i < 5; i++) await events.append(eventRecord({ teamId }));
      });
      await database().damage({ table: 'events', column: 'data', idColumn: 'sequence', id: 2 });
      const list = await read(({ events }) => events.list({ teamId, after: 0, limit: 3 }));
      expect(list.map((event) => event.sequence)).toEqual([1, 3, 4]);
      expect(unreadable).toEqual(['events 2']);
    });
  });

  describe('history of metadata', () => {
    test('changes are listed newest first in pages, trimmed and removed per sandbox', async () => {
      const { unreadable, write, read } = await open();
      const [one, two] = [newId('sandbox'), newId('sandbox')];
      const change = (sandboxId: typeof one, metadataVersion: number) => {
        const changes = { a: `${metadataVersion}`, b: null };
        return { sandboxId, metadataVersion, atMs: 1, by: 'key', operationId: null, changes };
      };
      await write(async ({ history }) => {
        for (const version of [1, 2, 3, 7, 8]) await history.append(change(one, version));
        await history.append({ ...change(two, 1), operationId: newId('operation') });
      });
      const versions = async (query: { before?: number; limit: number }) => {
        const list = await read(({ history }) => history.list({ sandboxId: one, ...query }));
        return list.map((item) => item.metadataVersion);
      };
      const [newest] = await read(({ history }) => history.list({ sandboxId: one, limit: 1 }));
      expect(newest).toStrictEqual(change(one, 8));
      expect(await versions({ limit: 2 })).toEqual([8, 7]);
      expect(await versions({ before: 7, limit: 10 })).toEqual([3, 2, 1]);
      await database().damage({ table: 'metadata_changes', column: 'changes', idColumn: 'metadata_version', id: 7 });
      expect(await versions({ limit: 2 })).toEqual([8, 3]);
      expect(unreadable).toEqual([`metadata_changes ${one}/7`]);
      await write(({ history }) => history.trim({ sandboxId: one, keep: 3 }));
      expect(await versions({ limit: 10 })).toEqual([8, 3]);
      await write(({ history }) => history.removeAll(one));
      expect(await versions({ limit: 10 })).toEqual([]);
      expect(await read(({ history }) => history.list({ sandboxId: two, limit: 10 }))).toHaveLength(1);
    });
  });

  describe('webhooks', () => {
    test('one is put, replaced, found, listed by team or all, and removed', async () => {
      const { unreadable, write, read } = await open();
      const first = webhookRecord({ kinds: ['sandbox.created'] });
      const second = webhookRecord({ createdAtMs: first.createdAtMs + 1, lastError: 'refused' });
      const changed = { ...first, cursor: 7, failures: 2, nextAttemptAtMs: 99 };
      await write(async ({ webhooks }) => {
        for (const webhook of [second, first, changed]) await webhooks.put(webhook);
      });
      expect(await read(({ webhooks }) => webhooks.find(first.id))).toStrictEqual(changed);
      expect(await read(({ webhooks }) => webhooks.list())).toStrictEqual([changed, second]);
      expect(await read(({ webhooks }) => webhooks.list(second.teamId))).toEqual([second]);
      await database().damage({ table: 'webhooks', column: 'kinds', idColumn: 'id', id: second.id });
      expect(await read(({ webhooks }) => webhooks.list())).toEqual([changed]);
      expect(unreadable).toEqual([`webhooks ${second.id}`]);
      await write(({ webhooks }) => webhooks.remove(first.id));
      expect(await read(({ webhooks }) => webhooks.find(first.id))).toBeUndefined();
    });
  });
}
