/**
 * What every store does, whatever database it stands on. Transactions, reading and durability are here; the tables' own
 * rules are in store-sandboxes.contract.ts and store-tables.contract.ts.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { AssertionError, type FaultPoints, ScriptedFaults } from '../../src/base/index.ts';
import type { SandboxId } from '../../src/protocol/index.ts';
import type { Readers, SandboxRecord, Store, Tables } from '../../src/store/index.ts';
import { eventRecord, sandboxRecord } from '../support/records.ts';
import { describeBranchTables } from './store-branches.contract.ts';
import { describePlanTables } from './store-plans.contract.ts';
import { describeSandboxTable } from './store-sandboxes.contract.ts';
import { describeOtherTables } from './store-tables.contract.ts';
import { describeWorkspaceTables } from './store-workspaces.contract.ts';

export interface OpenOptions {
  readonly faults?: FaultPoints;
  readonly onUnreadable?: (table: string, id: string, error: unknown) => void;
  /** As if the disk had this much room for the database. */
  readonly limitBytes?: number;
}

/** One empty database of one test. */
export interface TestDatabase {
  /** Opens it, again if it was open before; every store is closed with the database. */
  open(options?: OpenOptions): Promise<Store>;
  /** The first arguments of test/support/store-writer.ts. */
  readonly writerArguments: readonly string[];
  /** Writes something into a column that is no JSON, behind the store's back. */
  damage(place: { table: string; column: string; idColumn: string; id: string | number }): Promise<void>;
  dispose(): Promise<void>;
}

export function describeStore(name: string, makeDatabase: () => Promise<TestDatabase>): void {
  describe(`store on ${name}`, () => {
    let database: TestDatabase;
    beforeEach(async () => {
      database = await makeDatabase();
    });
    afterEach(() => database.dispose());

    describeTransactions(() => database);
    describeReading(() => database);
    describeDurability(() => database);
    describeFindSandbox(() => database);
    describeSandboxTable(() => database);
    describeOtherTables(() => database);
    describeBranchTables(() => database);
    describeWorkspaceTables(() => database);
    describePlanTables(() => database);
  });
}

function describeFindSandbox(database: () => TestDatabase): void {
  const next = (record: SandboxRecord): SandboxRecord => ({ ...record, version: record.version + 1 });

  test('a sandbox is found as it was last committed: not before its commit, and from then on', async () => {
    const faults = new ScriptedFaults();
    const store = await database().open({ faults });
    const record = sandboxRecord();
    expect(await store.findSandbox(record.id)).toBeUndefined();
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    expect(await store.findSandbox(record.id)).toEqual(record);

    const gate = faults.hold('store-before-commit');
    const updated = store.transact(({ sandboxes }) => sandboxes.update(next(record)));
    await gate.reached;
    // Written and not committed: looked for twice, because the first look may be remembered.
    expect(await store.findSandbox(record.id)).toEqual(record);
    expect(await store.findSandbox(record.id)).toEqual(record);
    gate.open();
    await updated;
    expect(await store.findSandbox(record.id)).toEqual(next(record));

    await store.transact(({ sandboxes }) => sandboxes.remove(record.id));
    expect(await store.findSandbox(record.id)).toBeUndefined();
  });

  test('a change that was undone is not found, whether its own work failed or the commit', async () => {
    const faults = new ScriptedFaults();
    const store = await database().open({ faults });
    const record = sandboxRecord();
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    const failing = store.transact(async ({ sandboxes }) => {
      await sandboxes.update(next(record));
      throw new Error('changed my mind');
    });
    await expect(failing).rejects.toThrow('changed my mind');
    expect(await store.findSandbox(record.id)).toEqual(record);
    faults.set('store-before-commit', { kind: 'error', error: new Error('no commit') });
    await expect(store.transact(({ sandboxes }) => sandboxes.update(next(record)))).rejects.toThrow('no commit');
    faults.clear('store-before-commit');
    expect(await store.findSandbox(record.id)).toEqual(record);
    await store.transact(({ sandboxes }) => sandboxes.update(next(record)));
    expect(await store.findSandbox(record.id)).toEqual(next(record));
  });

  test('while a sandbox changes and is looked for, nobody finds what is older than a change that was answered', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    let answered = record.version;
    let isOver = false;
    const change = async () => {
      for (let round = 0; round < 200; round++) {
        const current = (await store.findSandbox(record.id))!;
        await store.transact(({ sandboxes }) => sandboxes.update(next(current)));
        answered = current.version + 1;
        if (round % 3 === 0) await nextTurn();
      }
      isOver = true;
    };
    const look = async () => {
      for (let looks = 0; !isOver; looks++) {
        const least = answered;
        expect((await store.findSandbox(record.id))!.version).toBeGreaterThanOrEqual(least);
        if (looks % 7 === 0) await nextTurn();
      }
    };
    await Promise.all([change(), look(), look(), look()]);
    expect(answered).toBe(record.version + 200);
  });
}

function describeTransactions(database: () => TestDatabase): void {
  test('a transaction answers what its work returns, and its writes are there', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    const answer = await store.transact(async ({ sandboxes }) => {
      await sandboxes.insert(record);
      expect(await sandboxes.find(record.id)).toEqual(record);
      return 'answer';
    });
    expect(answer).toBe('answer');
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
  });

  test('work that throws loses all its writes and answers its own error', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    const failure = new Error('changed my mind');
    const work = async ({ sandboxes, events }: Tables) => {
      await sandboxes.insert(record);
      await events.append(eventRecord());
      throw failure;
    };
    await expect(store.transact(work)).rejects.toBe(failure);
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toBeUndefined();
    expect(await store.read(({ events }) => events.range())).toEqual({ first: 1, last: 0 });
  });

  test('of works given at once, only those that fail are undone', async () => {
    const store = await database().open();
    const records = Array.from({ length: 40 }, () => sandboxRecord());
    const outcomes = await Promise.allSettled(
      records.map((record, index) =>
        store.transact(async ({ sandboxes }) => {
          await sandboxes.insert(record);
          if (index % 3 === 0) throw new Error(`no ${index}`);
          return index;
        }),
      ),
    );
    for (const [index, outcome] of outcomes.entries()) {
      const found = await store.read(({ sandboxes }) => sandboxes.find(records[index]!.id));
      expect(found !== undefined).toBe(index % 3 !== 0);
      if (outcome.status === 'fulfilled') expect(outcome.value).toBe(index);
      else expect(outcome.reason).toEqual(new Error(`no ${index}`));
    }
  });

  test('works run alone: none sees half of another, and increments are never lost', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    const increment = async ({ sandboxes }: Tables) => {
      const current = (await sandboxes.find(record.id))!;
      for (let i = 0; i < 5; i++) await sandboxes.count({}); // Other works would come in between here.
      const next = { ...current, version: current.version + 1, generation: current.generation + 1 };
      expect(await sandboxes.update(next)).toBe(true);
    };
    await Promise.all(Array.from({ length: 50 }, () => store.transact(increment)));
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toMatchObject({
      generation: 51,
      version: 51,
    });
  });

  test('works run in the order they were given, however many commits they take', async () => {
    const store = await database().open();
    const order: number[] = [];
    const given = Array.from({ length: 1000 }, (_, index) =>
      store.transact(async ({ sandboxes }) => {
        order.push(index);
        await sandboxes.insert(sandboxRecord());
      }),
    );
    await Promise.all(given);
    expect(order).toEqual(given.map((_, index) => index));
  });

  test('if the commit fails, every work of it hears so and nothing is kept', async () => {
    const faults = new ScriptedFaults();
    const store = await database().open({ faults });
    const records = [sandboxRecord({ name: 'one' }), sandboxRecord()];
    faults.set('store-before-commit', { kind: 'error', error: new Error('no commit') });
    const insert = (record: SandboxRecord) => store.transact(({ sandboxes }) => sandboxes.insert(record));
    // The third is refused because of the first, which never was: it must not hear that its name is taken.
    const rival = sandboxRecord({ teamId: records[0]!.teamId, name: 'one' });
    const outcomes = await Promise.allSettled([...records, rival].map(insert));
    for (const outcome of outcomes)
      expect(outcome).toMatchObject({ status: 'rejected', reason: { message: 'no commit' } });
    faults.clear('store-before-commit');
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(0);
    await insert(rival);
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(1);
  });

  test('work that awaits something else is rolled back and told so, and the next one runs', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    const foreign: ((tables: Tables) => Promise<unknown>)[] = [
      () => new Promise(() => {}),
      () => nextTurn(),
      () => store.transact(async () => {}),
    ];
    for (const wait of foreign) {
      const work = async (tables: Tables) => {
        await tables.sandboxes.insert(record);
        await wait(tables);
      };
      await expect(store.transact(work)).rejects.toThrow('awaits something other than its tables');
    }
    await expect(store.read(() => new Promise(() => {}))).rejects.toThrow(AssertionError);
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(0);
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
  });

  test('tables used after their work has ended fail and change nothing', async () => {
    const store = await database().open();
    const kept = await store.transact(async (tables) => tables);
    const keptReaders = await store.read(async (readers) => readers);
    await expect(kept.sandboxes.insert(sandboxRecord())).rejects.toThrow(AssertionError);
    await expect(keptReaders.sandboxes.count({})).rejects.toThrow(AssertionError);
    // Also while another work runs: they must not end up in there.
    await store.read(() => expect(keptReaders.sandboxes.count({})).rejects.toThrow(AssertionError));
    await store.transact(async () => void (await kept.sandboxes.insert(sandboxRecord()).catch(() => {})));
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(0);
  });

  test('many transactions leave turns of the event loop to others', async () => {
    const store = await database().open();
    let done = false;
    const work = ({ sandboxes }: Tables) => sandboxes.insert(sandboxRecord());
    const all = Promise.all(Array.from({ length: 2000 }, () => store.transact(work))).then(() => (done = true));
    let turns = 0;
    for (; !done; turns++) await nextTurn();
    await all;
    expect(turns).toBeGreaterThanOrEqual(5);
  });

  test('a number that is no safe integer is a bug, not a rounded number', async () => {
    const store = await database().open();
    for (const generation of [1.5, 2 ** 53, Number.NaN]) {
      const work = ({ sandboxes }: Tables) => sandboxes.insert(sandboxRecord({ generation }));
      await expect(store.transact(work)).rejects.toThrow(AssertionError);
    }
    const record = sandboxRecord({ createdAtMs: Number.MAX_SAFE_INTEGER });
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
  });

  test('close finishes what was given, twice is once, and then everything is refused', async () => {
    const store = await database().open();
    const record = sandboxRecord();
    const given = store.transact(({ sandboxes }) => sandboxes.insert(record));
    await Promise.all([store.close(), store.close()]);
    await given;
    await expect(store.transact(async () => {})).rejects.toMatchObject({ code: 'shutting_down' });
    await expect(store.read(async () => {})).rejects.toMatchObject({ code: 'shutting_down' });
    const reopened = await database().open();
    expect(await reopened.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
  });
}

function describeReading(database: () => TestDatabase): void {
  test('a read sees nothing of a transaction before its commit, all of it after, and does not wait for it', async () => {
    const faults = new ScriptedFaults();
    const store = await database().open({ faults });
    const record = sandboxRecord();
    const gate = faults.hold('store-before-commit');
    const written = store.transact(({ sandboxes }) => sandboxes.insert(record));
    await gate.reached;
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toBeUndefined();
    gate.open();
    await written;
    expect(await store.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
  });

  test('a read sees one state from its beginning to its end', async () => {
    const store = await database().open();
    const pairs = Promise.all(
      Array.from({ length: 50 }, () =>
        store.transact(async ({ sandboxes, events }) => {
          await sandboxes.insert(sandboxRecord());
          await events.append(eventRecord());
        }),
      ),
    );
    const readBoth = async ({ sandboxes, events }: Readers) => [await sandboxes.count({}), (await events.range()).last];
    for (let i = 0; i < 50; i++) {
      const [counted, last] = await store.read(readBoth);
      expect(counted).toBe(last);
      await nextTurn();
    }
    await pairs;
  });

  test('reads at once each get their own answer, and one that throws fails alone', async () => {
    const store = await database().open();
    const records = Array.from({ length: 20 }, () => sandboxRecord());
    await store.transact(async ({ sandboxes }) => {
      for (const record of records) await sandboxes.insert(record);
    });
    const reads = records.map((record, index) =>
      store.read(async ({ sandboxes }) => {
        if (index === 7) throw new Error('seven');
        return (await sandboxes.find(record.id))?.id;
      }),
    );
    const outcomes = await Promise.allSettled(reads);
    expect(outcomes.filter((outcome) => outcome.status === 'rejected')).toHaveLength(1);
    for (const [index, outcome] of outcomes.entries()) {
      if (outcome.status === 'fulfilled') expect(outcome.value).toBe(records[index]?.id);
    }
  });

  test('records are frozen through and through', async () => {
    const store = await database().open();
    const record = sandboxRecord({ metadata: { a: '1' } });
    await store.transact(({ sandboxes }) => sandboxes.insert(record));
    const found = (await store.read(({ sandboxes }) => sandboxes.find(record.id)))!;
    const parts = [found, found.spec, found.spec.limits, found.spec.env, found.state, found.metadata];
    expect(parts.every(Object.isFrozen)).toBe(true);
  });
}

function describeDurability(database: () => TestDatabase): void {
  test('what was answered survives closing and opening again', async () => {
    const first = await database().open();
    const record = sandboxRecord({ metadata: { a: '1' } });
    await first.transact(async ({ sandboxes, events }) => {
      await sandboxes.insert(record);
      await events.append(eventRecord());
    });
    await first.close();
    const second = await database().open();
    expect(await second.read(({ sandboxes }) => sandboxes.find(record.id))).toEqual(record);
    expect((await second.transact(({ events }) => events.append(eventRecord()))).sequence).toBe(2);
  });

  test.each(['synced', 'written'])(
    'whatever was answered before a kill -9 is there after it, %s, and transactions are whole',
    async (durability) => {
      const writer = startWriter(database(), ['', durability]);
      const printed: string[] = [];
      for await (const line of writer.lines) {
        printed.push(line);
        if (printed.length === 200) writer.child.kill('SIGKILL');
      }
      expect(await writer.ended).toBe('SIGKILL');
      expect(printed.length).toBeGreaterThanOrEqual(200);

      const store = await database().open();
      for (const line of printed) {
        const [sequence, id] = line.split(' ');
        const record = (await store.read(({ sandboxes }) => sandboxes.find(id as SandboxId)))!;
        expect(record.id).toBe(id);
        const query = { teamId: record.teamId, sandboxId: record.id, after: Number(sequence) - 1, limit: 1 };
        const [event] = await store.read(({ events }) => events.list(query));
        expect(event).toMatchObject({ sequence: Number(sequence), sandboxId: id });
      }
      const range = await store.read(({ events }) => events.range());
      expect(range).toEqual({ first: 1, last: await store.read(({ sandboxes }) => sandboxes.count({})) });
    },
  );

  test.each([
    ['before', 0, 0],
    // Five are given at once; on a slow machine the time of a batch ends before the last of them.
    ['after', 1, 5],
  ] as const)('a crash just %s the commit leaves all of it or nothing', async (when, least, most) => {
    const writer = startWriter(database(), [`store-${when}-commit=crash`]);
    for await (const line of writer.lines) expect.unreachable(line);
    expect(await writer.ended).toBe('SIGKILL');
    const store = await database().open();
    const kept = await store.read(({ sandboxes }) => sandboxes.count({}));
    expect(kept).toBeGreaterThanOrEqual(least);
    expect(kept).toBeLessThanOrEqual(most);
    expect(await store.read(({ events }) => events.range())).toEqual({ first: 1, last: kept });
  });

  test('a full disk is insufficient_storage, keeps nothing of the work, and what was there stays readable', async () => {
    const store = await database().open({ limitBytes: 512 * 1024 });
    const kept: SandboxId[] = [];
    const fill = (store: Store, record = sandboxRecord({ metadata: { fill: 'x'.repeat(10_000) } })) =>
      store.transact(async ({ sandboxes, events }) => {
        await events.append(eventRecord());
        await sandboxes.insert(record);
        return record.id;
      });
    const failure = await (async () => {
      for (let i = 0; i < 200; i++) kept.push(await fill(store));
      return 'the disk never filled';
    })().catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: 'insufficient_storage' });
    expect(kept.length).toBeGreaterThan(0);

    // Work that hides the failure has still not written all it meant to.
    const hiding = store.transact(async ({ sandboxes, events }) => {
      await events.append(eventRecord({ kind: 'hidden' }));
      const big = sandboxRecord({ metadata: { fill: 'x'.repeat(300_000) } });
      await sandboxes.insert(big).catch(() => {});
      await events.append(eventRecord({ kind: 'hidden' })).catch(() => {});
    });
    await expect(hiding).rejects.toMatchObject({ code: 'insufficient_storage' });

    for (const id of kept) expect(await store.read(({ sandboxes }) => sandboxes.find(id))).toBeDefined();
    expect(await store.read(({ sandboxes }) => sandboxes.count({}))).toBe(kept.length);
    expect(await store.read(({ events }) => events.range())).toEqual({ first: 1, last: kept.length });

    // Room that is made is used again.
    await store.transact(async ({ sandboxes }) => {
      for (const id of kept.splice(0, 4)) await sandboxes.remove(id);
    });
    kept.push(await fill(store));
    await store.close();
    const reopened = await database().open();
    expect(await reopened.read(({ sandboxes }) => sandboxes.count({}))).toBe(kept.length);
  });
}

function startWriter(database: TestDatabase, more: readonly string[]) {
  const script = fileURLToPath(import.meta.resolve('../support/store-writer.ts'));
  const args = [script, ...database.writerArguments, ...more];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'close').then(([, signal]) => signal as string | null);
  return { child, ended, lines: createInterface({ input: child.stdout }) };
}
