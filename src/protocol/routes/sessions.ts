/** Sessions: persistent shells, the commands that run in them one after another, and the processes that are started from them. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { sessionEndReasons } from '../node-sessions.ts';
import { defineRoute } from '../route.ts';
import { instant, none, text } from '../schemas.ts';
import { execLimits, execResult } from './exec.ts';
import { processView, startProcess } from './processes.ts';
import { sandboxParams } from './sandboxes.ts';

export const sessionLimits = {
  /** Of one sandbox. */
  live: 128,
  /** Ended ones of one sandbox that are remembered with their exit. */
  ended: 200,
  /** What waits in one session. */
  queue: 256,
  queueTimeoutMs: 24 * 3600 * 1000,
  /** Variables of one command, or of one change of the session's own. */
  envNames: 256,
} as const;

const sessionErrors = [
  'session_not_found',
  'sandbox_not_found',
  'stale_generation',
  'sandbox_unavailable',
  'node_unavailable',
] as const;
const changeErrors = [...sessionErrors, 'sandbox_wrong_state', 'lease_held', 'lease_lost', 'outcome_unknown'] as const;
const turnErrors = [...changeErrors, 'session_terminated', 'session_queue_timeout', 'limit_exceeded'] as const;

/** An id never looks like a name: it is `ses` and 20 more. */
const sessionName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, 'A name is 1 to 63 of A-Z, a-z, 0-9, ".", "_" and "-".')
  .refine((name) => !/^ses[a-z0-9]{20}$/.test(name), 'A name does not look like an id.');
/** By id or name. */
export const sessionReference = z.union([idSchema('session'), sessionName]);
const sessionParams = sandboxParams.extend({ session: sessionReference });

const env = z
  .record(z.string(), z.string().nullable())
  .refine(
    (names) => Object.keys(names).length <= sessionLimits.envNames,
    `At most ${sessionLimits.envNames} variables at once.`,
  );
const cwd = text({ maxLength: 4_095 });
const timeoutMs = z.int().min(1).max(execLimits.timeoutMs);
/** How long it may wait for its turn; 0: it begins at once or not at all. */
const queueTimeoutMs = z.int().min(0).max(sessionLimits.queueTimeoutMs);
const bytes = z.union([z.string(), z.strictObject({ base64: z.base64() })]);

export const sessionEnd = z.object({
  /** 128+n for signal n. null: nobody saw it. */
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  reason: z.enum(sessionEndReasons),
  endedAt: instant,
});

export const sessionView = z.object({
  id: idSchema('session'),
  name: z.string().nullable(),
  sandboxId: idSchema('sandbox'),
  generation: z.int(),
  state: z.enum(['running', 'ended']),
  /** Of the shell, inside the sandbox. */
  pid: z.int(),
  shell: z.string(),
  user: z.string().nullable(),
  /** Of a command that brings none of its own. */
  timeoutMs: z.int().nullable(),
  startedAt: instant,
  end: sessionEnd.nullable(),
  /** Where the shell is now; null when it has ended, or where that cannot be told. */
  cwd: z.string().nullable(),
  /** The operation that runs in it now. */
  current: z.object({ operationId: z.string(), since: instant }).nullable(),
  /** How many wait behind it. */
  queued: z.int(),
});
export type SessionView = z.output<typeof sessionView>;

export const sessionExecResult = execResult.extend({
  sessionId: idSchema('session'),
  /** How long it waited for its turn. */
  queuedMs: z.number(),
  /** Set when the shell ended in this command; the next call is refused with `session_terminated`. */
  sessionEnded: sessionEnd.nullable(),
});
export type SessionExecResult = z.output<typeof sessionExecResult>;

export const createSession = defineRoute({
  name: 'createSession',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/sessions',
  summary:
    'Starts a persistent shell. A name that a living session has is refused; one whose session has ended gets a new shell.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    /** A handle of your own. */
    name: sessionName.optional(),
    cwd: cwd.optional(),
    /** On top of the sandbox's; null unsets. */
    env: env.optional(),
    user: text({ maxLength: 64 }).optional(),
    /** Of a command that brings none of its own. */
    timeoutMs: timeoutMs.optional(),
    /** A bash; the one of the sandbox unless told. */
    shell: cwd.optional(),
  }),
  result: sessionView,
  status: 201,
  errors: [
    ...changeErrors,
    'session_exists',
    'session_shell_not_usable',
    'cwd_not_usable',
    'user_not_usable',
    'limit_exceeded',
  ],
});

export const listSessions = defineRoute({
  name: 'listSessions',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/sessions',
  summary: 'Sessions of the present life: those that live first, the newest first in each.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: z.object({ items: z.array(sessionView) }),
  errors: ['sandbox_not_found', 'sandbox_unavailable', 'node_unavailable'],
});

export const getSession = defineRoute({
  name: 'getSession',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/sessions/:session',
  summary:
    'One session, by id or name, with where its shell is, what runs in it and how many wait. Also one that has ended.',
  scope: 'sandboxes:read',
  params: sessionParams,
  query: none,
  body: none,
  result: sessionView,
  errors: [...sessionErrors],
});

export const execInSession = defineRoute({
  name: 'execInSession',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/sessions/:session/exec',
  summary:
    'Runs a text in the shell and answers when it ends; calls run one after another. A timeout ends the session. A caller that disconnects does not stop the command, unless `stopOnDisconnect`, which ends the session if the command runs already.',
  scope: 'sandboxes:exec',
  params: sessionParams,
  query: none,
  body: z.strictObject({
    command: z.string(),
    /** For this command; the shell is back where it was afterwards. */
    cwd: cwd.optional(),
    /** For this command; null unsets. */
    env: env.optional(),
    stdin: bytes.optional(),
    timeoutMs: timeoutMs.optional(),
    queueTimeoutMs: queueTimeoutMs.optional(),
    /** Of stdout and stderr each. */
    outputLimitBytes: z.int().min(0).max(execLimits.outputBytes).default(execLimits.outputBytes),
    encoding: z.enum(['utf8', 'base64']).default('utf8'),
    stopOnDisconnect: z.boolean().default(false),
  }),
  result: sessionExecResult,
  bodyLimitBytes: Math.ceil((execLimits.stdinBytes * 4) / 3) + execLimits.commandBytes * 2,
  errors: [...turnErrors, 'invalid_command', 'cwd_not_usable'],
});

export const setSessionEnv = defineRoute({
  name: 'setSessionEnv',
  method: 'PATCH',
  path: '/v1/sandboxes/:sandboxId/sessions/:session/env',
  summary: 'Sets and unsets exported variables of the shell, all of them or none, in turn with its commands.',
  scope: 'sandboxes:exec',
  params: sessionParams,
  query: none,
  body: z.strictObject({
    /** null unsets. */
    env,
    queueTimeoutMs: queueTimeoutMs.optional(),
  }),
  result: none,
  status: 204,
  errors: [...turnErrors],
});

const { name, stdin, graceMs, keepBytes, autoCleanup } = startProcess.body.shape;

export const startSessionProcess = defineRoute({
  name: 'startSessionProcess',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/sessions/:session/processes',
  summary:
    'Starts a process from a copy of the shell as it is: directory, variables, functions, aliases. It waits for its turn; the session is busy only for the launch, and nothing is written back. It ends with the session, unless `detach`.',
  scope: 'sandboxes:exec',
  params: sessionParams,
  query: none,
  body: z.strictObject({
    ...{ name, stdin, graceMs, keepBytes, autoCleanup },
    command: z.string(),
    cwd: cwd.optional(),
    env: env.optional(),
    timeoutMs: timeoutMs.optional(),
    queueTimeoutMs: queueTimeoutMs.optional(),
    /** It outlives the session. */
    detach: z.boolean().default(false),
  }),
  result: processView,
  status: 201,
  bodyLimitBytes: execLimits.commandBytes * 3,
  errors: [...turnErrors, 'invalid_command', 'cwd_not_usable', 'process_not_startable', 'process_exists'],
});

export const deleteSession = defineRoute({
  name: 'deleteSession',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/sessions/:session',
  summary:
    'Kills the shell, what runs in it and the processes started from it at once, and forgets it. What waits is refused.',
  scope: 'sandboxes:exec',
  params: sessionParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: [...changeErrors],
});
