/** Workspaces with their versions, where sandboxes have them, and the checkpoints that hold them in place. */
export const workspaces = {
  version: 5,
  statements: [
    `CREATE TABLE workspaces (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      node_id TEXT NOT NULL,
      name TEXT NOT NULL,
      state TEXT NOT NULL,
      head_number INTEGER NOT NULL,
      head_commit TEXT,
      version INTEGER NOT NULL,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      updated_at_ms INTEGER NOT NULL,
      UNIQUE (team_id, name)
    ) STRICT`,
    'CREATE INDEX workspaces_by_team ON workspaces (team_id, created_at_ms DESC, id DESC)',
    `CREATE TABLE workspace_versions (
      workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
      number INTEGER NOT NULL,
      commit_id TEXT NOT NULL,
      kind TEXT NOT NULL,
      summary TEXT NOT NULL,
      author TEXT NOT NULL,
      sandbox_id TEXT,
      plan_id TEXT,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      PRIMARY KEY (workspace_id, number)
    ) STRICT, WITHOUT ROWID`,
    // A row goes with its sandbox and with its workspace.
    `CREATE TABLE attachments (
      sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
      workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
      team_id TEXT NOT NULL,
      path TEXT NOT NULL,
      base_number INTEGER NOT NULL,
      base_commit TEXT NOT NULL,
      baseline TEXT,
      attached_at_ms INTEGER NOT NULL,
      attached_by TEXT NOT NULL,
      PRIMARY KEY (sandbox_id, workspace_id)
    ) STRICT, WITHOUT ROWID`,
    'CREATE INDEX attachments_by_workspace ON attachments (workspace_id)',
    "ALTER TABLE checkpoints ADD COLUMN attachments TEXT NOT NULL DEFAULT '[]'", // JSON
    `CREATE TABLE attach_cache (
      key TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      node_id TEXT NOT NULL,
      checkpoint_id TEXT NOT NULL,
      baselines TEXT NOT NULL, -- JSON
      used_at_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID`,
    'CREATE INDEX attach_cache_by_use ON attach_cache (used_at_ms, key)',
  ],
} as const;
