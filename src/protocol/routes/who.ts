/** Who: teams, users, keys, tokens. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute, scopes } from '../route.ts';
import { instant, none, text } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';

export const keyView = z.object({
  id: idSchema('key'),
  teamId: idSchema('team'),
  userId: idSchema('user').nullable(),
  name: z.string(),
  scopes: z.array(z.enum(scopes)),
  sandboxId: idSchema('sandbox').nullable(),
  createdAt: instant,
  expiresAt: instant.nullable(),
  revokedAt: instant.nullable(),
});
export type KeyView = z.output<typeof keyView>;
/** The text of a key is shown once, when it is made. */
export const newKeyView = keyView.extend({ key: z.string() });

const lifetime = z
  .int()
  .min(1_000)
  .max(10 * 365 * 24 * 3600 * 1000);

export const whoAmI = defineRoute({
  name: 'whoAmI',
  method: 'GET',
  path: '/v1/me',
  summary: 'The key that this request was made with.',
  scope: 'sandboxes:read',
  params: none,
  query: none,
  body: none,
  result: keyView,
  errors: [],
});

export const createKey = defineRoute({
  name: 'createKey',
  method: 'POST',
  path: '/v1/keys',
  summary: 'Makes a key of the same team, with no scope that the caller lacks. Its text is in this answer only.',
  scope: 'keys:write',
  params: none,
  query: none,
  body: z.strictObject({
    name: text({ maxLength: 100 }),
    scopes: z.array(z.enum(scopes)).min(1),
    userId: idSchema('user').optional(),
    /** Another team: for `admin` only. */
    teamId: idSchema('team').optional(),
    expiresInMs: lifetime.optional(),
  }),
  result: newKeyView,
  status: 201,
  errors: ['user_not_found', 'team_not_found'],
});

export const listKeys = defineRoute({
  name: 'listKeys',
  method: 'GET',
  path: '/v1/keys',
  summary: "The team's keys and tokens, without their texts.",
  scope: 'keys:write',
  params: none,
  query: none,
  body: none,
  result: z.object({ items: z.array(keyView) }),
  errors: [],
});

export const revokeKey = defineRoute({
  name: 'revokeKey',
  method: 'DELETE',
  path: '/v1/keys/:keyId',
  summary: 'Revokes a key or token at once. Revoking it again succeeds.',
  scope: 'keys:write',
  params: z.object({ keyId: idSchema('key') }),
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: ['key_not_found'],
});

export const createSandboxToken = defineRoute({
  name: 'createSandboxToken',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/tokens',
  summary: 'Makes an expiring token that reaches this sandbox only, with no scope that the caller lacks.',
  scope: 'keys:write',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    name: text({ maxLength: 100 }).default('token'),
    scopes: z.array(z.enum(scopes)).min(1).default(['sandboxes:read', 'sandboxes:exec']),
    expiresInMs: lifetime.default(3600 * 1000),
  }),
  result: newKeyView,
  status: 201,
  errors: ['sandbox_not_found'],
});

export const userView = z.object({
  id: idSchema('user'),
  teamId: idSchema('team'),
  name: z.string(),
  createdAt: instant,
});

export const createUser = defineRoute({
  name: 'createUser',
  method: 'POST',
  path: '/v1/users',
  summary: 'Makes a user of the team; keys may belong to one.',
  scope: 'keys:write',
  params: none,
  query: none,
  body: z.strictObject({ name: text({ maxLength: 100 }) }),
  result: userView,
  status: 201,
  errors: [],
});

export const listUsers = defineRoute({
  name: 'listUsers',
  method: 'GET',
  path: '/v1/users',
  summary: "The team's users.",
  scope: 'keys:write',
  params: none,
  query: none,
  body: none,
  result: z.object({ items: z.array(userView) }),
  errors: [],
});

const teamDiskBytes = z
  .int()
  .min(0)
  .max(2 ** 52)
  .nullable();

export const teamView = z.object({
  id: idSchema('team'),
  name: z.string(),
  /** What its sandboxes, checkpoints and backups may take on disks together; null: no bound. */
  diskBytes: z.int().nullable(),
  createdAt: instant,
});

export const createTeam = defineRoute({
  name: 'createTeam',
  method: 'POST',
  path: '/v1/teams',
  summary: 'Makes a team. Its first key is made with `POST /v1/keys` and the team id.',
  scope: 'admin',
  params: none,
  query: none,
  body: z.strictObject({ name: text({ maxLength: 100 }), diskBytes: teamDiskBytes.default(null) }),
  result: teamView,
  status: 201,
  errors: [],
});

export const updateTeam = defineRoute({
  name: 'updateTeam',
  method: 'PATCH',
  path: '/v1/teams/:teamId',
  summary: 'Changes what a team may take on disks. What is there already stays.',
  scope: 'admin',
  params: z.object({ teamId: idSchema('team') }),
  query: none,
  body: z.strictObject({ diskBytes: teamDiskBytes }),
  result: teamView,
  errors: ['team_not_found'],
});

export const listTeams = defineRoute({
  name: 'listTeams',
  method: 'GET',
  path: '/v1/teams',
  summary: 'Every team of this installation.',
  scope: 'admin',
  params: none,
  query: none,
  body: none,
  result: z.object({ items: z.array(teamView) }),
  errors: [],
});
