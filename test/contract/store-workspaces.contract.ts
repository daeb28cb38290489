/** The rules of workspaces, their versions and attachments in a store, for store.contract.ts. */
import { describe, expect, test } from 'vitest';
import { AssertionError } from '../../src/base/index.ts';
import { newId } from '../../src/protocol/index.ts';
import type { AttachCacheRecord } from '../../src/store/index.ts';
import { attachmentRecord, sandboxRecord, versionRecord, workspaceRecord } from '../support/records.ts';
import type { TestDatabase } from './store.contract.ts';

export function describeWorkspaceTables(database: () => TestDatabase): void {
  describe('workspaces', () => {
    test('one is inserted, found by id and name, listed newest first by what is asked, counted and removed', async () => {
      const store = await database().open();
      const teamId = newId('team');
      const old = workspaceRecord({ teamId, name: 'a' });
      const young = workspaceRecord({ teamId, state: 'creating', createdAtMs: old.createdAtMs + 1 });
      const other = workspaceRecord({ nodeId: old.nodeId });
      await store.transact(async ({ workspaces }) => {
        for (const record of [old, young, other]) await workspaces.insert(record);
      });
      const list = (filter: object, page: object = { limit: 10 }) =>
        store.read(({ workspaces }) => workspaces.list(filter, page as { limit: number })).then(idsOf);
      expect(await store.read(({ workspaces }) => workspaces.find(old.id))).toStrictEqual(old);
      expect(await store.read(({ workspaces }) => workspaces.findByName({ teamId, name: 'a' }))).toStrictEqual(old);
      expect(await store.read(({ workspaces }) => workspaces.findByName({ teamId, name: 'b' }))).toBeUndefined();
      expect(await list({ teamId })).toEqual([young.id, old.id]);
      expect(await list({ teamId }, { limit: 1 })).toEqual([young.id]);
      expect(await list({ teamId }, { limit: 1, after: young })).toEqual([old.id]);
      expect(await list({ teamId, states: ['creating'] })).toEqual([young.id]);
      expect(await list({ nodeId: old.nodeId })).toHaveLength(2);
      expect(await list({})).toHaveLength(3);
      expect(await store.read(({ workspaces }) => workspaces.count(teamId))).toBe(2);
      await store.transact(({ workspaces }) => workspaces.remove(old.id));
      expect(await store.read(({ workspaces }) => workspaces.find(old.id))).toBeUndefined();
      expect(await store.read(({ workspaces }) => workspaces.count(teamId))).toBe(1);
    });

    test('a name is one workspace of a team, and free again when that is gone', async () => {
      const store = await database().open();
      const first = workspaceRecord({ name: 'a' });
      const second = workspaceRecord({ name: 'a', teamId: first.teamId });
      await store.transact(({ workspaces }) => workspaces.insert(first));
      const again = store.transact(({ workspaces }) => workspaces.insert(second));
      await expect(again).rejects.toMatchObject({ code: 'name_taken', details: { name: 'a' } });
      await store.transact(({ workspaces }) => workspaces.insert(workspaceRecord({ name: 'a' })));
      await store.transact(({ workspaces }) => workspaces.remove(first.id));
      await store.transact(({ workspaces }) => workspaces.insert(second));
    });

    test('an update counts only on the version before it', async () => {
      const store = await database().open();
      const record = workspaceRecord({ state: 'creating' });
      await store.transact(({ workspaces }) => workspaces.insert(record));
      const next = { ...record, state: 'ready' as const, headNumber: 1, headCommit: 'a'.repeat(40), version: 2 };
      expect(await store.transact(({ workspaces }) => workspaces.update({ ...next, version: 3 }))).toBe(false);
      expect(await store.transact(({ workspaces }) => workspaces.update(next))).toBe(true);
      expect(await store.transact(({ workspaces }) => workspaces.update(next))).toBe(false);
      expect(await store.read(({ workspaces }) => workspaces.find(record.id))).toStrictEqual(next);
    });

    test('versions have no gaps, are listed newest first, and go with their workspace', async () => {
      const store = await database().open();
      const { id: workspaceId, ...rest } = workspaceRecord();
      const made = [1, 2, 3].map((number) =>
        versionRecord({ workspaceId, number, kind: number === 1 ? 'import' : 'commit', planId: newId('plan') }),
      );
      await store.transact(async ({ workspaces }) => {
        await workspaces.insert({ id: workspaceId, ...rest });
        for (const version of made) await workspaces.insertVersion(version);
      });
      for (const number of [3, 5]) {
        const gap = versionRecord({ workspaceId, number });
        await expect(store.transact(({ workspaces }) => workspaces.insertVersion(gap))).rejects.toThrow(AssertionError);
      }
      const stray = store.transact(({ workspaces }) => workspaces.insertVersion(versionRecord()));
      await expect(stray).rejects.toMatchObject({ code: 'internal' });
      const versions = (page: { before?: number; limit: number }) =>
        store.read(({ workspaces }) => workspaces.versions(workspaceId, page));
      expect(await versions({ limit: 9 })).toStrictEqual(made.toReversed());
      expect(await versions({ before: 3, limit: 1 })).toStrictEqual([made[1]]);
      const find = (number: number) => store.read(({ workspaces }) => workspaces.findVersion({ workspaceId, number }));
      expect(await find(2)).toStrictEqual(made[1]);
      await store.transact(({ workspaces }) => workspaces.remove(workspaceId));
      expect(await find(2)).toBeUndefined();
    });
  });

  describe('attachments', () => {
    test('one is put, replaced, listed by either side, and goes with its sandbox or its workspace', async () => {
      const store = await database().open();
      const sandboxes = [sandboxRecord(), sandboxRecord()] as const;
      const workspaces = [workspaceRecord(), workspaceRecord()] as const;
      const of = (sandbox: number, workspace: number, path: string) =>
        attachmentRecord({ sandboxId: sandboxes[sandbox]!.id, workspaceId: workspaces[workspace]!.id, path });
      const all = [of(0, 0, '/b'), of(0, 1, '/a'), of(1, 0, '/b')] as const;
      await store.transact(async (tables) => {
        for (const record of sandboxes) await tables.sandboxes.insert(record);
        for (const record of workspaces) await tables.workspaces.insert(record);
        for (const record of all) await tables.workspaces.putAttachment(record);
      });
      const ofSandbox = (at: 0 | 1) => store.read((tables) => tables.workspaces.attachmentsOf(sandboxes[at].id));
      const toWorkspace = (at: 0 | 1) => store.read((tables) => tables.workspaces.attachmentsTo(workspaces[at].id));
      expect(await ofSandbox(0)).toStrictEqual([all[1], all[0]]);
      expect(await toWorkspace(0)).toHaveLength(2);
      const moved = { ...all[0], baseNumber: 2, baseCommit: 'd'.repeat(40), baseline: 'b1' };
      await store.transact((tables) => tables.workspaces.putAttachment(moved));
      expect(await ofSandbox(0)).toStrictEqual([all[1], moved]);
      const { sandboxId, workspaceId } = all[1];
      await store.transact((tables) => tables.workspaces.removeAttachments({ sandboxId, workspaceId }));
      expect(await ofSandbox(0)).toStrictEqual([moved]);
      await store.transact((tables) => tables.sandboxes.remove(sandboxes[1].id));
      expect(await toWorkspace(0)).toStrictEqual([moved]);
      await store.transact((tables) => tables.workspaces.removeAttachments({ sandboxId }));
      expect(await ofSandbox(0)).toEqual([]);
      await store.transact((tables) => tables.workspaces.putAttachment(moved));
      await store.transact((tables) => tables.workspaces.remove(workspaces[0].id));
      expect(await ofSandbox(0)).toEqual([]);
      const stray = store.transact((tables) => tables.workspaces.putAttachment(attachmentRecord()));
      await expect(stray).rejects.toMatchObject({ code: 'internal' });
    });

    test('what holds workspaces in place is found by its key, listed least recently used first, and left out if damaged', async () => {
      const store = await database().open({ onUnreadable: () => {} });
      const make = (key: string, usedAtMs: number): AttachCacheRecord => ({
        ...{ key, teamId: newId('team'), nodeId: newId('node'), checkpointId: newId('checkpoint'), usedAtMs },
        baselines: { [newId('workspace')]: 'b1' },
      });
      const records = [make('a', 3), make('b', 1), make('c', 2)] as const;
      await store.transact(async ({ workspaces }) => {
        for (const record of records) await workspaces.putAttachCache(record);
      });
      const list = (limit: number) =>
        store.read(({ workspaces }) => workspaces.listAttachCache(limit)).then((found) => found.map(({ key }) => key));
      expect(await store.read(({ workspaces }) => workspaces.findAttachCache('a'))).toStrictEqual(records[0]);
      expect(await list(2)).toEqual(['b', 'c']);
      await store.transact(({ workspaces }) => workspaces.putAttachCache({ ...records[1], usedAtMs: 9 }));
      expect(await list(9)).toEqual(['c', 'a', 'b']);
      await store.transact(({ workspaces }) => workspaces.removeAttachCache('c'));
      await database().damage({ table: 'attach_cache', column: 'baselines', idColumn: 'key', id: 'a' });
      expect(await list(9)).toEqual(['b']);
      expect(await store.read(({ workspaces }) => workspaces.findAttachCache('c'))).toBeUndefined();
    });
  });
}

function idsOf(records: readonly { readonly id: string }[]): string[] {
  return records.map(({ id }) => id);
}
