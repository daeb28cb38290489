/**
 * Every step from an empty database to the latest version, in order. A released step is never changed: a new one follows.
 * The version grows by one per step and is kept in `PRAGMA user_version`.
 */
import { firstTables } from './0001-first-tables.ts';
import { network } from './0002-network.ts';
import { exposures } from './0003-exposures.ts';
import { branches } from './0004-branches.ts';
import { workspaces } from './0005-workspaces.ts';
import { plans } from './0006-plans.ts';

export interface Migration {
  readonly version: number;
  readonly statements: readonly string[];
}

export const migrations: readonly Migration[] = [firstTables, network, exposures, branches, workspaces, plans];
