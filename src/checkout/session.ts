/** One entry of the cache: which sandbox a checkout uses, and what happened with it from here. */
import { z } from 'zod';
import type { CheckoutIdentity } from './identity.ts';

export interface Session {
  readonly key: string;
  /** As the server was given; never put together from parts. */
  readonly serverUrl: string;
  /** null: its creation was begun and its answer has not been seen. */
  readonly sandboxId: string | null;
  readonly name: string;
  readonly identity: CheckoutIdentity;
  readonly root: string;
  /** Hash of the definition that it was made from. */
  readonly definition: string | null;
  readonly execCount: number;
  readonly lastExecMs: number | null;
  readonly hintShown: boolean;
  readonly createdMs: number;
}

const row = z.object({
  key: z.string(),
  server_url: z.string(),
  sandbox_id: z.string().nullable(),
  name: z.string(),
  repository: z.string(),
  worktree: z.string(),
  ref: z.string(),
  config_path: z.string(),
  root: z.string(),
  definition: z.string().nullable(),
  exec_count: z.int(),
  last_exec_ms: z.int().nullable(),
  hint_shown: z.int(),
  created_ms: z.int(),
});

export function sessionOf(given: unknown): Session {
  const found = row.parse(given);
  return {
    key: found.key,
    serverUrl: found.server_url,
    sandboxId: found.sandbox_id,
    name: found.name,
    identity: {
      repository: found.repository,
      worktree: found.worktree,
      ref: found.ref,
      configPath: found.config_path,
    },
    root: found.root,
    definition: found.definition,
    execCount: found.exec_count,
    lastExecMs: found.last_exec_ms,
    hintShown: found.hint_shown === 1,
    createdMs: found.created_ms,
  };
}
