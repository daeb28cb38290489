/** The rules of the table of sandboxes, for store.contract.ts. */
import { describe, expect, test } from 'vitest';
import { newId, stateKinds } from '../../src/protocol/index.ts';
import type { SandboxFilter, SandboxRecord, Store } from '../../src/store/index.ts';
import { sandboxRecord } from '../support/records.ts';
import type { TestDatabase } from './store.contract.ts';

export function describeSandboxTable(database: () => TestDatabase): void {
  describe('sandboxes', () => {
    describeRecords(database);
    describeNames(database);
    describeLists(database);
  });
}

function describeRecords(database: () => TestDatabase): void {
  test('what comes back equals what was put in, odd texts included', async () => {
    const store = await database().open();
    const odd = 'ü 🦀 "\'\\ \n \u0000 \ud800 $.a[0] %_';
    const record = sandboxRecord({
      name: 'a-name',
      state: { kind: 'stopped', reason: 'expired', atMs: 5, note: odd },
      metadata: { [odd]: odd, ['__proto__']: 'own', '': '' },
      expiresAtMs: 7,
      leaseToken: 3,
      leaseHeld: true,
      network: {
        mode: 'full',
        allow: [{ cidr: '10.0.0.0/8', protocol: 'tcp', ports: [{ from: 1, to: 2 }] }],
        deny: [],
      },
      userId: newId('user'),
    });
    await insertAll(store, [record]);
    const found = (await store.read(({ sandboxes }) => sandboxes.find(record.id)))!;
    expect(found).toStrictEqual(record);
    expect(Object.entries(found.metadata)).toEqual(Object.entries(record.metadata));
    expect(await idsOf(store, { metadata: { [odd]: odd, ['__proto__']: 'own', '': '' } })).toEqual([record.id]);
    expect(await idsOf(store, { metadata: { [odd]: `${odd} ` } })).toEqual([]);
  });

  test('every kind of state is kept', async () => {
    const store = await database().open();
    const paused = { kind: 'paused', mode: 'memory', reason: 'expired', atMs: 1, leftMs: 3 } as const;
    const states: SandboxRecord['state'][] = [
      { kind: 'creating', untilMs: 1 },
      { kind: 'running' },
      { kind: 'stopping', reason: 'requested', untilMs: 1 },
      { kind: 'stopped', reason: 'lost', atMs: 1 },
      { kind: 'starting', previous: 'crashed', untilMs: 1 },
      { kind: 'pausing', mode: 'files', expiresAtMs: 2, untilMs: 1 },
      paused,
      { kind: 'resuming', paused, untilMs: 1 },
      {
        kind: 'restoring',
        checkpointId: newId('checkpoint'),
        before: { state: paused, generation: 2, expiresAtMs: null },
        untilMs: 1,
      },
      { kind: 'deleting', untilMs: 1 },
      { kind: 'failed', why: 'no template' },
    ];
    expect(states.map((state) => state.kind)).toEqual(stateKinds);
    const records = states.map((state) => sandboxRecord({ state }));
    await insertAll(store, records);
    for (const record of records) {
      expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
      expect(await idsOf(store, { states: [record.state.kind] })).toEqual([record.id]);
    }
    expect(await idsOf(store, { states: [] })).toEqual([]);
  });

  test('an update is applied only on the version before it', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    await insertAll(store, [record]);
    const next = {
      ...record,
      version: 2,
      generation: 2,
      metadata: { a: '1' },
      state: { kind: 'deleting', untilMs: 9 } as const,
    };
    expect(await update(store, { ...next, version: 3 })).toBe(false);
    expect(await update(store, { ...next, version: 1 })).toBe(false);
    expect(await update(store, { ...next, id: newId('sandbox') })).toBe(false);
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
    expect(await update(store, next)).toBe(true);
    expect(await update(store, next)).toBe(false);
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(next);
  });

  test('of updates at once on one version, exactly one is applied', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    await insertAll(store, [record]);
    const attempts = Array.from({ length: 20 }, (_, index) => ({
      ...record,
      version: 2,
      metadata: { by: `${index}` },
    }));
    const applied = await Promise.all(attempts.map((attempt) => update(store, attempt)));
    expect(applied.filter(Boolean)).toHaveLength(1);
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(attempts[applied.indexOf(true)]);
  });

  test('a removed record is gone with its metadata and name; removing again changes nothing', async () => {
    const store = await database().open();
    const record = sandboxRecord({ name: 'n', metadata: { a: '1' } });
    await insertAll(store, [record]);
    for (let i = 0; i < 2; i++) await store.transact(({ sandboxes }) => sandboxes.remove(record.id));
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toBeUndefined();
    expect(await store.read(({ sandboxes }) => sandboxes.count({ metadata: { a: '1' } }))).toBe(0);
    await insertAll(store, [record]);
    expect(await idsOf(store, { metadata: { a: '1' } })).toEqual([record.id]);
  });

  test('an id is inserted once', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    await insertAll(store, [record]);
    await expect(insertAll(store, [{ ...record, version: 9 }])).rejects.toMatchObject({ code: 'internal' });
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
  });
}

function describeNames(database: () => TestDatabase): void {
  test('a name is taken once per team, and free again when its record is gone', async () => {
    const store = await database().open();
    const [first, second] = [sandboxRecord({ name: 'web' }), sandboxRecord({ name: 'web' })];
    const rival = sandboxRecord({ name: 'web', teamId: first.teamId, metadata: { a: '1' } });
    await insertAll(store, [first, second]);
    const taken = { code: 'name_taken', details: { name: 'web' } };
    await expect(insertAll(store, [rival])).rejects.toMatchObject(taken);
    const byName = () => store.read(({ sandboxes }) => sandboxes.findByName({ teamId: first.teamId, name: 'web' }));
    expect(await byName()).toEqual(first);
    await store.transact(({ sandboxes }) => sandboxes.remove(first.id));
    expect(await byName()).toBeUndefined();
    await insertAll(store, [rival]);
    expect(await byName()).toEqual(rival);
  });

  test('of inserts at once with one name, exactly one succeeds', async () => {
    const store = await database().open();
    const teamId = newId('team');
    const attempts = Array.from({ length: 20 }, () => insertAll(store, [sandboxRecord({ teamId, name: 'one' })]));
    const outcomes = await Promise.allSettled(attempts);
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
    expect(refused).toHaveLength(19);
    for (const { reason } of refused) expect(reason).toMatchObject({ code: 'name_taken' });
    expect(await store.read(({ sandboxes }) => sandboxes.count({ teamId }))).toBe(1);
  });

  test('a refused name leaves the work free to go on', async () => {
    const store = await database().open();
    const first = sandboxRecord({ name: 'web' });
    const renamed = sandboxRecord({ name: 'web-2', teamId: first.teamId });
    await insertAll(store, [first]);
    await store.transact(async ({ sandboxes }) => {
      await expect(sandboxes.insert({ ...renamed, name: 'web' })).rejects.toMatchObject({ code: 'name_taken' });
      await sandboxes.insert(renamed);
    });
    expect(await store.read(({ sandboxes }) => sandboxes.find(renamed.id))).toEqual(renamed);
  });

  test('an update to a taken name is refused, to its own it is not', async () => {
    const store = await database().open();
    const teamId = newId('team');
    const [first, second] = [sandboxRecord({ teamId, name: 'a' }), sandboxRecord({ teamId, name: 'b' })];
    await insertAll(store, [first, second]);
    await expect(update(store, { ...second, version: 2, name: 'a' })).rejects.toMatchObject({ code: 'name_taken' });
    expect(await update(store, { ...second, version: 2 })).toBe(true);
    expect(await update(store, { ...second, version: 3, name: null })).toBe(true);
    expect(await update(store, { ...first, version: 2, name: 'b' })).toBe(true);
  });

  test('any number of sandboxes of a team have no name', async () => {
    const store = await database().open();
    const teamId = newId('team');
    await insertAll(store, [sandboxRecord({ teamId }), sandboxRecord({ teamId })]);
    expect(await store.read(({ sandboxes }) => sandboxes.count({ teamId }))).toBe(2);
  });
}

function describeLists(database: () => TestDatabase): void {
  test('each filter narrows, and together they narrow further; count agrees with list', async () => {
    const store = await database().open();
    const mine = { teamId: newId('team'), nodeId: newId('node'), createdBy: newId('key'), userId: newId('user') };
    const wanted = sandboxRecord({ ...mine, name: 'web_%1', metadata: { app: 'web', tier: '1' } });
    const others = [
      sandboxRecord({ teamId: mine.teamId, name: 'webx%1', metadata: { app: 'web' } }),
      sandboxRecord({ nodeId: mine.nodeId, metadata: { app: 'web', tier: '2' } }),
      sandboxRecord({ createdBy: mine.createdBy, state: { kind: 'failed', why: '' }, metadata: { web: 'app' } }),
      sandboxRecord({ userId: mine.userId, name: 'Web_%1' }),
    ];
    await insertAll(store, [wanted, ...others]);
    const cases: [SandboxFilter, readonly SandboxRecord[]][] = [
      [{}, [wanted, ...others]],
      [{ teamId: mine.teamId }, [wanted, others[0]!]],
      [{ nodeId: mine.nodeId }, [wanted, others[1]!]],
      [{ createdBy: mine.createdBy }, [wanted, others[2]!]],
      [{ userId: mine.userId }, [wanted, others[3]!]],
      [{ namePrefix: 'web_' }, [wanted]],
      [{ namePrefix: 'web' }, [wanted, others[0]!]],
      [{ namePrefix: '' }, [wanted, others[0]!, others[3]!]],
      [{ metadata: { app: 'web' } }, [wanted, others[0]!, others[1]!]],
      [{ metadata: { app: 'web', tier: '1' } }, [wanted]],
      [{ metadata: {} }, [wanted, ...others]],
      [{ states: ['failed', 'deleting'] }, [others[2]!]],
      [{ ...mine, states: ['running'], namePrefix: 'web', metadata: { app: 'web', tier: '1' } }, [wanted]],
      [{ ...mine, states: ['failed'] }, []],
    ];
    for (const [filter, expected] of cases) {
      const label = JSON.stringify(filter);
      expect((await idsOf(store, filter)).toSorted(), label).toEqual(expected.map((record) => record.id).toSorted());
      expect(await store.read(({ sandboxes }) => sandboxes.count(filter)), label).toBe(expected.length);
    }
  });

  test('metadata filters follow updates', async () => {
    const store = await database().open();
    const record = sandboxRecord({ metadata: { a: '1', b: '1' } });
    await insertAll(store, [record]);
    await update(store, { ...record, version: 2, metadata: { a: '2', c: '1' } });
    for (const [metadata, found] of [
      [{ a: '1' }, 0],
      [{ b: '1' }, 0],
      [{ a: '2', c: '1' }, 1],
    ] as const) {
      expect(await store.read(({ sandboxes }) => sandboxes.count({ metadata }))).toBe(found);
    }
  });

  test('pages come newest first, by id where times are equal, and end with a short one', async () => {
    const store = await database().open();
    const teamId = newId('team');
    const records = Array.from({ length: 25 }, (_, i) =>
      sandboxRecord({ teamId, createdAtMs: 1000 + Math.floor(i / 4) }),
    );
    await insertAll(store, records);
    const newestFirst = (a: SandboxRecord, b: SandboxRecord) => b.createdAtMs - a.createdAtMs || (a.id < b.id ? 1 : -1);
    const expected = records.toSorted(newestFirst).map((record) => record.id);
    for (const limit of [1, 4, 25, 100]) expect(await idsOf(store, { teamId }, limit)).toEqual(expected);
  });

  test('paging is stable: what is inserted or removed meanwhile neither repeats nor hides a record', async () => {
    const store = await database().open();
    const teamId = newId('team');
    const records = Array.from({ length: 12 }, (_, i) => sandboxRecord({ teamId, createdAtMs: 1000 + i }));
    await insertAll(store, records);
    const seen: string[] = [];
    let after: SandboxRecord | undefined;
    for (let round = 0; ; round++) {
      const page = { limit: 3, ...(after && { after: { createdAtMs: after.createdAtMs, id: after.id } }) };
      const list = await store.read(({ sandboxes }) => sandboxes.list({ teamId }, page));
      seen.push(...list.map((record) => record.id));
      if (list.length < 3) break;
      after = list.at(-1);
      await insertAll(store, [sandboxRecord({ teamId, createdAtMs: 2000 + round })]);
      await store.transact(({ sandboxes }) => sandboxes.remove(after!.id)); // Also the record the cursor stands on.
    }
    expect(seen).toEqual(records.map((record) => record.id).toReversed());
  });

  test('a record that cannot be read is reported, left out, and costs no place on its page', async () => {
    const unreadable: string[] = [];
    const store = await database().open({ onUnreadable: (table, id) => unreadable.push(`${table} ${id}`) });
    const records = Array.from({ length: 6 }, (_, i) => sandboxRecord({ createdAtMs: 1000 - i, metadata: { a: '1' } }));
    await insertAll(store, records);
    const places = { spec: records[0]!, state: records[2]!, metadata: records[3]! };
    for (const [column, { id }] of Object.entries(places)) {
      await database().damage({ table: 'sandboxes', column, idColumn: 'id', id });
    }
    const damaged = Object.values(places);
    const readable = records.filter((record) => !damaged.includes(record)).map((record) => record.id);
    const list = await store.read(({ sandboxes }) => sandboxes.list({}, { limit: 2 }));
    expect(list.map((record) => record.id)).toEqual(readable.slice(0, 2));
    unreadable.length = 0;
    expect(await idsOf(store, { metadata: { a: '1' } }, 10)).toEqual(readable);
    expect(unreadable).toEqual(damaged.map(({ id }) => `sandboxes ${id}`));
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(6);
    const find = store.read(({ sandboxes }) => sandboxes.find(damaged[0]!.id));
    await expect(find).rejects.toMatchObject({ code: 'internal' });
    await store.transact(({ sandboxes }) => sandboxes.remove(damaged[0]!.id));
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(5);
  });
}

async function insertAll(store: Store, records: readonly SandboxRecord[]): Promise<void> {
  await store.transact(async ({ sandboxes }) => {
    for (const record of records) await sandboxes.insert(record);
  });
}

function update(store: Store, record: SandboxRecord): Promise<boolean> {
  return store.transact(({ sandboxes }) => sandboxes.update(record));
}

/** Through all pages. */
async function idsOf(store: Store, filter: SandboxFilter, limit = 100): Promise<string[]> {
  const ids: string[] = [];
  for (let last: SandboxRecord | undefined; ; ) {
    const page = { limit, ...(last && { after: { createdAtMs: last.createdAtMs, id: last.id } }) };
    const list = await store.read(({ sandboxes }) => sandboxes.list(filter, page));
    ids.push(...list.map((record) => record.id));
    if (list.length < limit) return ids;
    last = list.at(-1);
  }
}
