/** Processes: commands with a life of their own, their output by cursor, their input, their end. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { cursor, instant, none, pageLimit, text } from '../schemas.ts';
import { execLimits } from './exec.ts';
import { sandboxParams } from './sandboxes.ts';

const mebibyte = 1024 * 1024;
export const processLimits = {
  /** Of the newest output that is kept. */
  keepBytes: 1024 * mebibyte,
  keepBytesDefault: 16 * mebibyte,
  keepBytesMin: 64 * 1024,
  /** Of one write. */
  stdinBytes: 8 * mebibyte,
  /** How long one wait is answered at the latest; a client asks again. */
  waitMs: 50_000,
  graceMs: 24 * 3600 * 1000,
  graceMsDefault: 1_000,
  /** Of one page of output. */
  pageBytes: 4 * mebibyte,
} as const;

const processErrors = [
  'process_not_found',
  'sandbox_not_found',
  'stale_generation',
  'sandbox_unavailable',
  'node_unavailable',
] as const;
const changeErrors = [...processErrors, 'sandbox_wrong_state', 'lease_held', 'lease_lost', 'outcome_unknown'] as const;

/** An id never looks like a name: it is `prc` and 20 more. */
const processName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, 'A name is 1 to 63 of A-Z, a-z, 0-9, ".", "_" and "-".')
  .refine((name) => !/^prc[a-z0-9]{20}$/.test(name), 'A name does not look like an id.');
const processParams = sandboxParams.extend({ process: z.union([idSchema('process'), processName]) });

export const processExit = z.object({
  /** 128+n for signal n. null: nobody saw it, because the sandbox ended first. */
  exitCode: z.int().nullable(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  killed: z.boolean(),
  outOfMemory: z.boolean(),
  sandboxEnded: z.boolean(),
  endedAt: instant,
});

export const processView = z.object({
  id: idSchema('process'),
  name: z.string().nullable(),
  sandboxId: idSchema('sandbox'),
  generation: z.int(),
  pid: z.int(),
  command: z.union([z.array(z.string()), z.string()]),
  cwd: z.string(),
  user: z.string().nullable(),
  /** Only of a process that was started from a session. */
  sessionId: z.string().nullable(),
  /** Until nothing of its tree is left, also when the leader has ended. */
  running: z.boolean(),
  startedAt: instant,
  /** Of the leader. */
  exit: processExit.nullable(),
  treeEndedAt: instant.nullable(),
  /** Of the kept output: its beginning, and where the next will begin. */
  output: z.object({ first: z.string(), end: z.string() }),
  stdinOpen: z.boolean(),
});
export type ProcessView = z.output<typeof processView>;

const outputItem = z.union([
  z.object({
    kind: z.literal('output'),
    stream: z.enum(['stdout', 'stderr']),
    data: z.string(),
    encoding: z.enum(['utf8', 'base64']),
    cursor: z.string(),
  }),
  z.object({ kind: z.literal('dropped'), bytes: z.int(), cursor: z.string() }),
  z.object({ kind: z.literal('exited'), exit: processExit, cursor: z.string() }),
  z.object({ kind: z.literal('ended'), cursor: z.string() }),
]);
export type ProcessOutputItem = z.output<typeof outputItem>;

/** By name (`TERM`, `SIGTERM`) or number, as `kill` takes them. */
const signal = z.union([z.int().min(1).max(64), z.string().regex(/^(SIG)?[A-Z][A-Z0-9+-]{0,15}$/)]);

export const startProcess = defineRoute({
  name: 'startProcess',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/processes',
  summary:
    'Starts a process and answers as soon as it runs. It goes on whoever disconnects, until it ends, is killed, times out, or the sandbox ends. With `Accept: text/event-stream` or `application/vnd.atoll.output` the process is the first item of a stream, and its output follows.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    command: z.union([z.array(z.string()).max(100_000), z.string()]),
    /** A handle of your own; a second process with it is refused. */
    name: processName.optional(),
    cwd: text({ maxLength: 4_095 }).optional(),
    /** null unsets what the sandbox sets. */
    env: z.record(z.string(), z.string().nullable()).optional(),
    user: text({ maxLength: 64 }).optional(),
    /** `open`: it waits for what is written. */
    stdin: z.enum(['closed', 'open']).default('closed'),
    timeoutMs: z.int().min(1).max(execLimits.timeoutMs).optional(),
    graceMs: z.int().min(0).max(processLimits.graceMs).default(processLimits.graceMsDefault),
    keepBytes: z
      .int()
      .min(processLimits.keepBytesMin)
      .max(processLimits.keepBytes)
      .default(processLimits.keepBytesDefault),
    /** Forgotten when it has ended and nobody follows it: for a stream that nobody comes back to. */
    autoCleanup: z.boolean().default(false),
  }),
  result: processView,
  status: 201,
  bodyLimitBytes: execLimits.commandBytes * 3,
  errors: [
    ...changeErrors,
    'invalid_command',
    'cwd_not_usable',
    'user_not_usable',
    'process_not_startable',
    'process_exists',
    'limit_exceeded',
  ],
});

export const listProcesses = defineRoute({
  name: 'listProcesses',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/processes',
  summary: 'Processes of the present life: what runs first, and the newest first.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: z.strictObject({ sessionId: idSchema('session').optional(), cursor: cursor.optional(), limit: pageLimit }),
  body: none,
  result: z.object({ items: z.array(processView), nextCursor: z.string().nullable() }),
  errors: ['sandbox_not_found', 'stale_generation', 'sandbox_unavailable', 'node_unavailable'],
});

export const getProcess = defineRoute({
  name: 'getProcess',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/processes/:process',
  summary: 'One process, by id or name.',
  scope: 'sandboxes:read',
  params: processParams,
  query: none,
  body: none,
  result: processView,
  errors: [...processErrors],
});

export const readProcessOutput = defineRoute({
  name: 'readProcessOutput',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/processes/:process/output',
  summary:
    'Output after `cursor`, both streams in order. With `Accept: text/event-stream` it is streamed, replay then live, each item with its cursor as id; `Last-Event-ID` resumes. With `Accept: application/vnd.atoll.output` the same comes as frames of bytes. Output that is no longer kept is told as an item `dropped`.',
  scope: 'sandboxes:read',
  params: processParams,
  query: z.strictObject({
    cursor: cursor.optional(),
    /** In `utf8` a character that two items share is shown as U+FFFD; `base64` is exact. */
    encoding: z.enum(['utf8', 'base64']).default('utf8'),
  }),
  body: none,
  result: z.object({
    items: z.array(outputItem),
    /** Where the next page begins. */
    cursor: z.string(),
    /** Whether there is more now. */
    hasMore: z.boolean(),
  }),
  errors: [...processErrors],
});

export const writeProcessStdin = defineRoute({
  name: 'writeProcessStdin',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/processes/:process/stdin',
  summary:
    'Writes to its standard input, and closes it with `close`. With `offset` a repeat is exact: what was written before is skipped.',
  scope: 'sandboxes:exec',
  params: processParams,
  query: none,
  body: z.strictObject({
    stdin: z.union([z.string(), z.strictObject({ base64: z.base64() })]).optional(),
    offset: z.int().min(0).optional(),
    close: z.boolean().default(false),
  }),
  result: z.object({ offset: z.int() }),
  bodyLimitBytes: processLimits.stdinBytes * 2,
  errors: [...changeErrors, 'stdin_closed', 'limit_exceeded'],
});

export const signalProcess = defineRoute({
  name: 'signalProcess',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/processes/:process/signal',
  summary:
    'Sends a signal, TERM unless told, to the whole tree unless told; with `graceMs` KILL follows if something is left. Answers when it is sent. A process that has ended stays as it is.',
  scope: 'sandboxes:exec',
  params: processParams,
  query: none,
  body: z.strictObject({
    signal: signal.default('TERM'),
    target: z.enum(['leader', 'tree']).default('tree'),
    graceMs: z.int().min(0).max(processLimits.graceMs).optional(),
  }),
  result: processView,
  errors: [...changeErrors],
});

export const killProcesses = defineRoute({
  name: 'killProcesses',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/kill',
  summary: 'Sends a signal, KILL unless told, to every process that runs, and tells how many these were.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    signal: signal.default('KILL'),
    graceMs: z.int().min(0).max(processLimits.graceMs).optional(),
  }),
  result: z.object({ count: z.int() }),
  errors: [
    'sandbox_not_found',
    'sandbox_wrong_state',
    'stale_generation',
    'lease_held',
    'lease_lost',
    'outcome_unknown',
  ],
});

export const waitProcess = defineRoute({
  name: 'waitProcess',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/processes/:process/wait',
  summary:
    'Answers when the leader (`exit`) or everything (`tree`) has ended, or when the time is over: the process tells which. Going away ends only the waiting.',
  scope: 'sandboxes:read',
  params: processParams,
  query: z.strictObject({
    for: z.enum(['exit', 'tree']).default('exit'),
    timeoutMs: z.coerce.number().int().min(0).max(processLimits.waitMs).default(processLimits.waitMs),
  }),
  body: none,
  result: processView,
  errors: [...processErrors],
});

export const removeProcess = defineRoute({
  name: 'removeProcess',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/processes/:process',
  summary: 'Forgets a process that has ended, with its output.',
  scope: 'sandboxes:exec',
  params: processParams,
  query: none,
  body: none,
  result: none,
  status: 204,
  errors: [...changeErrors, 'process_running'],
});

export const probePort = defineRoute({
  name: 'probePort',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/ports/:port/probe',
  summary: 'Whether something inside answers on this port now: to a connection, or to an HTTP request for `path`.',
  scope: 'sandboxes:read',
  params: sandboxParams.extend({ port: z.coerce.number().int().min(1).max(65_535) }),
  query: z.strictObject({
    family: z.enum(['4', '6']).optional(),
    path: text({ maxLength: 2_000 }).optional(),
    timeoutMs: z.coerce.number().int().min(1).max(30_000).default(5_000),
  }),
  body: none,
  result: z.object({ open: z.boolean(), status: z.int().nullable() }),
  errors: ['sandbox_not_found', 'stale_generation', 'sandbox_wrong_state', 'sandbox_unavailable', 'node_unavailable'],
});
