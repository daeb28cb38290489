/** Ports of sandboxes that are shown outside. A row goes with its sandbox. */
export const exposures = {
  version: 3,
  statements: [
    `CREATE TABLE exposures (
      sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
      port INTEGER NOT NULL,
      is_public INTEGER NOT NULL,
      token_id TEXT NOT NULL,
      token_hash TEXT NOT NULL,
      created_at_ms INTEGER NOT NULL,
      created_by TEXT NOT NULL,
      PRIMARY KEY (sandbox_id, port)
    ) STRICT, WITHOUT ROWID`,
  ],
} as const;
