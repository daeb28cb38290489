/** The rules of checkpoints and backups in a store, for store.contract.ts. */
import { describe, expect, test } from 'vitest';
import { newId, noNetwork } from '../../src/protocol/index.ts';
import type { BackupRecord, CheckpointRecord } from '../../src/store/index.ts';
import { attachmentRecord, sandboxRecord } from '../support/records.ts';
import type { TestDatabase } from './store.contract.ts';

function checkpointRecord(given: Partial<CheckpointRecord> = {}): CheckpointRecord {
  return {
    ...{ id: newId('checkpoint'), teamId: newId('team'), nodeId: newId('node'), sandboxId: newId('sandbox') },
    ...{ name: null, state: 'ready', isHidden: false, generation: 1, spec: sandboxRecord().spec, network: noNetwork },
    ...{ metadata: { a: 'b' }, sizeBytes: 100, frozenMs: 2, createdAtMs: 1_000, createdBy: newId('key') },
    ...{ attachments: [], expiresAtMs: null, ...given },
  };
}

export function describeBranchTables(database: () => TestDatabase): void {
  describe('checkpoints', () => {
    test('one is put, replaced, found, listed newest first by what is asked, counted, summed and removed', async () => {
      const store = await database().open({ onUnreadable: () => {} });
      const teamId = newId('team');
      const { workspaceId, path, baseNumber, baseCommit, baseline } = attachmentRecord();
      const attachments = [{ workspaceId, path, baseNumber, baseCommit, baseline }];
      const old = checkpointRecord({ teamId, name: 'a', expiresAtMs: 5_000, attachments });
      const young = checkpointRecord({ teamId, sandboxId: old.sandboxId, createdAtMs: 2_000, isHidden: true });
      const other = checkpointRecord({ state: 'creating', sizeBytes: null, frozenMs: null });
      await store.transact(async ({ checkpoints }) => {
        for (const record of [old, young, other]) await checkpoints.put(record);
      });
      const list = (filter: object, limit = 10) =>
        store.read(({ checkpoints }) => checkpoints.list(filter, { limit })).then((found) => found.map(({ id }) => id));
      expect(await store.read(({ checkpoints }) => checkpoints.find(old.id))).toStrictEqual(old);
      expect(await store.read(({ checkpoints }) => checkpoints.find(other.id))).toStrictEqual(other);
      expect(await list({ teamId })).toEqual([young.id, old.id]);
      expect(await list({ sandboxId: old.sandboxId, isHidden: false })).toEqual([old.id]);
      expect(await list({ name: 'a' })).toEqual([old.id]);
      expect(await list({ states: ['creating'] })).toEqual([other.id]);
      expect(await list({ expiredAtMs: 5_000 })).toEqual([old.id]);
      expect(await list({ expiredAtMs: 4_999 })).toEqual([]);
      const page = { after: young, limit: 1 };
      expect(await store.read(({ checkpoints }) => checkpoints.list({ teamId }, page))).toStrictEqual([old]);
      expect(await store.read(({ checkpoints }) => checkpoints.count(teamId))).toBe(2);
      expect(await store.read(({ checkpoints }) => checkpoints.totalBytes(teamId))).toBe(200);
      const deleting = { ...old, state: 'deleting' as const };
      await store.transact(({ checkpoints }) => checkpoints.put(deleting));
      expect(await store.read(({ checkpoints }) => checkpoints.find(old.id))).toStrictEqual(deleting);
      await database().damage({ table: 'checkpoints', column: 'spec', idColumn: 'id', id: young.id });
      expect(await list({ teamId })).toEqual([old.id]);
      await store.transact(({ checkpoints }) => checkpoints.remove(old.id));
      expect(await list({ name: 'a' })).toEqual([]);
    });
  });

  describe('backups', () => {
    test('one is inserted, found, listed newest first, counted, summed and removed once', async () => {
      const store = await database().open({});
      const teamId = newId('team');
      const make = (given: Partial<BackupRecord>): BackupRecord => ({
        ...{ id: newId('backup'), teamId, sandboxId: newId('sandbox'), path: '/data', name: null, sizeBytes: 10 },
        ...{ digest: 'd'.repeat(64), createdAtMs: 1_000, createdBy: newId('key'), expiresAtMs: null, ...given },
      });
      const [old, young] = [make({ expiresAtMs: 9 }), make({ createdAtMs: 2_000, name: 'n' })];
      await store.transact(async ({ backups }) => {
        for (const record of [old, young]) await backups.insert(record);
      });
      expect(await store.read(({ backups }) => backups.find(young.id))).toStrictEqual(young);
      expect(await store.read(({ backups }) => backups.list({ teamId }, { limit: 9 }))).toStrictEqual([young, old]);
      const after = { after: young, limit: 9 };
      expect(await store.read(({ backups }) => backups.list({ teamId }, after))).toStrictEqual([old]);
      expect(await store.read(({ backups }) => backups.list({ expiredAtMs: 9 }, { limit: 9 }))).toStrictEqual([old]);
      expect(await store.read(({ backups }) => backups.list({ sandboxId: old.sandboxId }, { limit: 9 }))).toEqual([
        old,
      ]);
      expect(await store.read(({ backups }) => backups.count(teamId))).toBe(2);
      expect(await store.read(({ backups }) => backups.totalBytes(teamId))).toBe(20);
      expect(await store.transact(({ backups }) => backups.remove(old.id))).toBe(true);
      expect(await store.transact(({ backups }) => backups.remove(old.id))).toBe(false);
    });

    test('what a team may take on disks is changed, and only of a team that is there', async () => {
      const store = await database().open({});
      const team = { id: newId('team'), name: 't', createdAtMs: 1, diskBytes: null };
      await store.transact(({ teams }) => teams.insert(team));
      expect(await store.transact(({ teams }) => teams.setDiskBytes({ id: team.id, diskBytes: 5 }))).toBe(true);
      expect(await store.read(({ teams }) => teams.find(team.id))).toStrictEqual({ ...team, diskBytes: 5 });
      expect(await store.transact(({ teams }) => teams.setDiskBytes({ id: newId('team'), diskBytes: 5 }))).toBe(false);
    });
  });
}
