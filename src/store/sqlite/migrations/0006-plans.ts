/** Plans with their members, each attempt to commit one, and their checkpoints. */
export const plans = {
  version: 6,
  statements: [
    `CREATE TABLE plans (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      name TEXT NOT NULL,
      state TEXT NOT NULL, -- JSON
      state_kind TEXT NOT NULL,
      fence INTEGER NOT NULL,
      version INTEGER NOT NULL,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      updated_at_ms INTEGER NOT NULL,
      UNIQUE (team_id, name)
    ) STRICT`,
    'CREATE INDEX plans_by_team ON plans (team_id, created_at_ms DESC, id DESC)',
    'CREATE INDEX plans_by_state ON plans (state_kind)',
    // A sandbox that is gone stays a member: its place and its work have to be accounted for.
    `CREATE TABLE plan_members (
      plan_id TEXT NOT NULL REFERENCES plans (id) ON DELETE CASCADE,
      sandbox_id TEXT NOT NULL,
      position INTEGER NOT NULL,
      added_at_ms INTEGER NOT NULL,
      added_by TEXT NOT NULL,
      PRIMARY KEY (plan_id, sandbox_id)
    ) STRICT, WITHOUT ROWID`,
    'CREATE INDEX plan_members_by_sandbox ON plan_members (sandbox_id)',
    `CREATE TABLE plan_commits (
      id TEXT PRIMARY KEY,
      plan_id TEXT NOT NULL,
      team_id TEXT NOT NULL,
      kind TEXT NOT NULL,
      mode TEXT NOT NULL,
      is_dry_run INTEGER NOT NULL,
      state TEXT NOT NULL,
      fingerprint TEXT NOT NULL,
      fence INTEGER NOT NULL,
      server_run TEXT NOT NULL,
      lease_id TEXT,
      members TEXT NOT NULL, -- JSON
      targets TEXT NOT NULL, -- JSON
      left_behind TEXT NOT NULL,
      kept_until_ms INTEGER,
      result TEXT, -- JSON
      created_by TEXT NOT NULL,
      started_at_ms INTEGER NOT NULL,
      finished_at_ms INTEGER,
      boot_id TEXT NOT NULL,
      expires_at_boot_ms INTEGER NOT NULL
    ) STRICT`,
    'CREATE INDEX plan_commits_by_plan ON plan_commits (plan_id, started_at_ms DESC, id DESC)',
    "CREATE INDEX plan_commits_left ON plan_commits (started_at_ms) WHERE left_behind <> 'nothing'",
    `CREATE TABLE plan_checkpoints (
      id TEXT PRIMARY KEY,
      plan_id TEXT NOT NULL,
      team_id TEXT NOT NULL,
      name TEXT,
      state TEXT NOT NULL,
      server_run TEXT NOT NULL,
      members TEXT NOT NULL, -- JSON
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL
    ) STRICT`,
    'CREATE INDEX plan_checkpoints_by_plan ON plan_checkpoints (plan_id, created_at_ms DESC, id DESC)',
  ],
} as const;
