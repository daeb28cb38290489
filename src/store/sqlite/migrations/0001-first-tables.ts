/**
 * Times are milliseconds, named `_ms`. Columns that hold JSON are marked; everything that is searched or compared has a
 * column of its own. STRICT makes the database refuse a value of another type.
 */
export const firstTables = {
  version: 1,
  statements: [
    `CREATE TABLE sandboxes (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      node_id TEXT NOT NULL,
      name TEXT,
      spec TEXT NOT NULL, -- JSON
      state TEXT NOT NULL, -- JSON
      state_kind TEXT NOT NULL, -- The kind in the state, to filter by.
      generation INTEGER NOT NULL,
      version INTEGER NOT NULL,
      metadata TEXT NOT NULL, -- JSON
      metadata_version INTEGER NOT NULL,
      expires_at_ms INTEGER,
      lease_token INTEGER NOT NULL,
      lease_held INTEGER NOT NULL,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      user_id TEXT,
      updated_at_ms INTEGER NOT NULL,
      UNIQUE (team_id, name)
    ) STRICT`,
    'CREATE INDEX sandboxes_by_team ON sandboxes (team_id, created_at_ms DESC, id DESC)',
    'CREATE INDEX sandboxes_by_time ON sandboxes (created_at_ms DESC, id DESC)',
    // The metadata again, for filters: JSON of [key, value], because a filter only ever compares whole pairs.
    `CREATE TABLE sandbox_pairs (
      pair TEXT NOT NULL,
      sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
      PRIMARY KEY (pair, sandbox_id)
    ) STRICT, WITHOUT ROWID`,
    'CREATE INDEX sandbox_pairs_by_sandbox ON sandbox_pairs (sandbox_id)',
    `CREATE TABLE operations (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      key TEXT NOT NULL,
      kind TEXT NOT NULL,
      fingerprint TEXT NOT NULL,
      subject_id TEXT,
      server_run TEXT NOT NULL,
      started_at_ms INTEGER NOT NULL,
      finished_at_ms INTEGER,
      answer TEXT, -- JSON, for the caller; never read here.
      UNIQUE (team_id, key)
    ) STRICT`,
    'CREATE INDEX operations_by_start ON operations (started_at_ms)',
    `CREATE TABLE teams (
      id TEXT PRIMARY KEY,
      name TEXT NOT NULL,
      created_at_ms INTEGER NOT NULL
    ) STRICT`,
    `CREATE TABLE users (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      name TEXT NOT NULL,
      created_at_ms INTEGER NOT NULL
    ) STRICT`,
    'CREATE INDEX users_by_team ON users (team_id, created_at_ms, id)',
    `CREATE TABLE keys (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      user_id TEXT,
      name TEXT NOT NULL,
      hash TEXT NOT NULL UNIQUE,
      scopes TEXT NOT NULL, -- JSON
      sandbox_id TEXT,
      created_at_ms INTEGER NOT NULL,
      expires_at_ms INTEGER,
      revoked_at_ms INTEGER
    ) STRICT`,
    'CREATE INDEX keys_by_team ON keys (team_id, created_at_ms, id)',
    `CREATE TABLE leases (
      team_id TEXT NOT NULL,
      resource TEXT NOT NULL,
      token INTEGER NOT NULL,
      lease_id TEXT, -- Of the holder, to find it by.
      holder TEXT, -- JSON
      PRIMARY KEY (team_id, resource)
    ) STRICT`,
    'CREATE INDEX leases_held ON leases (team_id, lease_id) WHERE lease_id IS NOT NULL',
    // AUTOINCREMENT remembers the last sequence when all events are gone, and forgets one that is rolled back: no gaps.
    `CREATE TABLE events (
      sequence INTEGER PRIMARY KEY AUTOINCREMENT,
      team_id TEXT NOT NULL,
      sandbox_id TEXT,
      kind TEXT NOT NULL,
      at_ms INTEGER NOT NULL,
      data TEXT NOT NULL -- JSON
    ) STRICT`,
    'CREATE INDEX events_by_team ON events (team_id, sequence)',
    'CREATE INDEX events_by_sandbox ON events (sandbox_id, sequence) WHERE sandbox_id IS NOT NULL',
    `CREATE TABLE metadata_changes (
      sandbox_id TEXT NOT NULL,
      metadata_version INTEGER NOT NULL,
      at_ms INTEGER NOT NULL,
      by TEXT NOT NULL,
      operation_id TEXT,
      changes TEXT NOT NULL, -- JSON
      PRIMARY KEY (sandbox_id, metadata_version)
    ) STRICT`,
    `CREATE TABLE webhooks (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      url TEXT NOT NULL,
      secret TEXT NOT NULL,
      kinds TEXT NOT NULL, -- JSON
      created_at_ms INTEGER NOT NULL,
      cursor INTEGER NOT NULL,
      failures INTEGER NOT NULL,
      next_attempt_at_ms INTEGER NOT NULL,
      last_error TEXT
    ) STRICT`,
    'CREATE INDEX webhooks_by_team ON webhooks (team_id)',
  ],
} as const;
