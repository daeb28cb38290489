export type * from './plan-records.ts';
export { openSqliteStore, type SqliteStoreOptions } from './sqlite/open-sqlite-store.ts';
export { StoreOpenError, type StoreOpenErrorCode } from './sqlite/store-open-error.ts';
export type * from './store.ts';
export type * from './workspace-records.ts';
