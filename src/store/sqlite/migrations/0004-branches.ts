/** Checkpoints, backups, what sandboxes do at their deadline, and what a team may take on disks. */
export const branches = {
  version: 4,
  statements: [
    `CREATE TABLE checkpoints (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      node_id TEXT NOT NULL,
      sandbox_id TEXT NOT NULL,
      name TEXT,
      state TEXT NOT NULL,
      is_hidden INTEGER NOT NULL,
      generation INTEGER NOT NULL,
      spec TEXT NOT NULL, -- JSON
      network TEXT NOT NULL, -- JSON
      metadata TEXT NOT NULL, -- JSON
      size_bytes INTEGER,
      frozen_ms INTEGER,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      expires_at_ms INTEGER
    ) STRICT`,
    'CREATE INDEX checkpoints_by_team ON checkpoints (team_id, created_at_ms DESC, id DESC)',
    'CREATE INDEX checkpoints_by_sandbox ON checkpoints (sandbox_id, created_at_ms DESC, id DESC)',
    'CREATE INDEX checkpoints_by_end ON checkpoints (expires_at_ms) WHERE expires_at_ms IS NOT NULL',
    `CREATE TABLE backups (
      id TEXT PRIMARY KEY,
      team_id TEXT NOT NULL,
      sandbox_id TEXT NOT NULL,
      path TEXT NOT NULL,
      name TEXT,
      size_bytes INTEGER NOT NULL,
      digest TEXT NOT NULL,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      expires_at_ms INTEGER
    ) STRICT`,
    'CREATE INDEX backups_by_team ON backups (team_id, created_at_ms DESC, id DESC)',
    "ALTER TABLE sandboxes ADD COLUMN on_expiry TEXT NOT NULL DEFAULT 'stop'",
    'ALTER TABLE sandboxes ADD COLUMN auto_resume INTEGER NOT NULL DEFAULT 0',
    'ALTER TABLE sandboxes ADD COLUMN keep_checkpoints INTEGER',
    'ALTER TABLE teams ADD COLUMN disk_bytes INTEGER',
  ],
} as const;
