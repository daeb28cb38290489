/** Terminals: a pty with a program in it, found again by id, with clients that come and go over a WebSocket. */
import { z } from 'zod';
import { idSchema } from '../ids.ts';
import { defineRoute } from '../route.ts';
import { instant, none, text } from '../schemas.ts';
import { execLimits } from './exec.ts';
import { processExit, processLimits } from './processes.ts';
import { sandboxParams } from './sandboxes.ts';

const kibibyte = 1024;
export const terminalLimits = {
  /** Live ones of a sandbox. */
  live: 128,
  /** Ended ones that are still known. */
  ended: 50,
  endedMs: 3600 * 1000,
  /** Of the newest output that is kept of one: what a client may lag behind. */
  keepBytes: 8 * 1024 * kibibyte,
  /** What a client without a cursor is shown of it. */
  replayBytesDefault: 256 * kibibyte,
  /** Clients of one terminal at a time, over one server. */
  clients: 64,
  /** Of one message of a client. */
  messageBytes: 1024 * kibibyte,
  /** What a client may send before the terminal has taken it. */
  inputBytes: 1024 * kibibyte,
  columns: 4_096,
  rows: 4_096,
  graceMsDefault: 2_000,
} as const;

/** The subprotocol that the server speaks; whoever cannot set headers offers it together with `terminalKeyProtocol` and the key. */
export const terminalProtocol = 'atoll.terminal.v1';
export const terminalKeyProtocol = 'atoll.key.';

const terminalErrors = [
  'terminal_not_found',
  'sandbox_not_found',
  'stale_generation',
  'sandbox_unavailable',
  'node_unavailable',
] as const;
const changeErrors = [...terminalErrors, 'sandbox_wrong_state', 'lease_held', 'lease_lost', 'outcome_unknown'] as const;

const columns = z.int().min(1).max(terminalLimits.columns);
const rows = z.int().min(1).max(terminalLimits.rows);

/** What a caller calls it; an id never looks like one. */
const terminalName = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/, 'It is 1 to 63 of A-Z, a-z, 0-9, ".", "_" and "-".');
const terminalHandle = z.union([idSchema('terminal'), terminalName]);
const terminalParams = sandboxParams.extend({ terminal: terminalHandle });

export const terminalView = z.object({
  id: idSchema('terminal'),
  /** The `id` that it was opened with, if that was one of your own. */
  name: z.string().nullable(),
  sandboxId: idSchema('sandbox'),
  generation: z.int(),
  pid: z.int(),
  /** null: a shell. */
  command: z.union([z.array(z.string()), z.string()]).nullable(),
  cwd: z.string(),
  user: z.string().nullable(),
  columns: z.int(),
  rows: z.int(),
  running: z.boolean(),
  startedAt: instant,
  exit: processExit.nullable(),
});
export type TerminalView = z.output<typeof terminalView>;

/** By name (`TERM`, `SIGTERM`) or number, as `kill` takes them. */
const signal = z.union([z.int().min(1).max(64), z.string().regex(/^(SIG)?[A-Z][A-Z0-9+-]{0,15}$/)]);
const signalBody = z.strictObject({
  signal: signal.default('INT'),
  /** `foreground`: what runs in front, as Ctrl-C does it, for INT, QUIT and TSTP. */
  target: z.enum(['foreground', 'leader', 'tree']).default('foreground'),
});

export const openTerminal = defineRoute({
  name: 'openTerminal',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/terminals',
  summary:
    'Opens a terminal, or finds the one that has this id: however many ask at once, there is one (201: made now; 200: it was there). It goes on whoever disconnects.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    /** A handle of your own, or the id of a terminal that is there. Absent: a new one. */
    id: terminalHandle.optional(),
    /** Absent: a shell. */
    command: z.union([z.array(z.string()).max(100_000), z.string()]).optional(),
    cwd: text({ maxLength: 4_095 }).optional(),
    /** null unsets what the sandbox sets. */
    env: z.record(z.string(), z.string().nullable()).optional(),
    user: text({ maxLength: 64 }).optional(),
    /** After which everything in it is killed. */
    timeoutMs: z.int().min(1).max(execLimits.timeoutMs).optional(),
    columns: columns.default(80),
    rows: rows.default(24),
  }),
  result: terminalView,
  status: 201,
  bodyLimitBytes: execLimits.commandBytes * 3,
  errors: [
    ...changeErrors,
    'invalid_command',
    'cwd_not_usable',
    'user_not_usable',
    'process_not_startable',
    'limit_exceeded',
  ],
});

export const listTerminals = defineRoute({
  name: 'listTerminals',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/terminals',
  summary: 'Terminals of the present life: what runs first, and the newest first.',
  scope: 'sandboxes:read',
  params: sandboxParams,
  query: none,
  body: none,
  result: z.object({ items: z.array(terminalView) }),
  errors: ['sandbox_not_found', 'sandbox_unavailable', 'node_unavailable'],
});

export const getTerminal = defineRoute({
  name: 'getTerminal',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/terminals/:terminal',
  summary: 'One terminal, by id or by the handle it was opened with.',
  scope: 'sandboxes:read',
  params: terminalParams,
  query: none,
  body: none,
  result: terminalView,
  errors: [...terminalErrors],
});

export const attachTerminal = defineRoute({
  name: 'attachTerminal',
  method: 'GET',
  path: '/v1/sandboxes/:sandboxId/terminals/:terminal/attach',
  summary:
    'A WebSocket to a terminal: bytes both ways as binary messages, control as JSON in text messages. docs/terminals.md tells the protocol. Anything but an upgrade is answered 426.',
  scope: 'sandboxes:exec',
  params: terminalParams,
  query: z.strictObject({
    /** Behind what the client has. Absent: the newest output that is kept. */
    cursor: z.string().min(1).max(200).optional(),
    /** Without a cursor: how much of the newest output is shown. */
    replayBytes: z.coerce
      .number()
      .int()
      .min(0)
      .max(terminalLimits.keepBytes)
      .default(terminalLimits.replayBytesDefault),
    /** As `Atoll-Lease-Token`, for those who cannot set headers. */
    leaseToken: z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER).optional(),
  }),
  body: none,
  result: none,
  errors: [...terminalErrors, 'upgrade_required', 'limit_exceeded'],
});

export const resizeTerminal = defineRoute({
  name: 'resizeTerminal',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/terminals/:terminal/resize',
  summary: 'Sets the size for all its clients; the last one that was set counts.',
  scope: 'sandboxes:exec',
  params: terminalParams,
  query: none,
  body: z.strictObject({ columns, rows }),
  result: terminalView,
  errors: [...changeErrors],
});

export const signalTerminal = defineRoute({
  name: 'signalTerminal',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/terminals/:terminal/signal',
  summary:
    'Sends a signal: without a body an interrupt to what runs in front, which leaves the shell alive; `leader` and `tree` mean the shell itself and everything in the terminal.',
  scope: 'sandboxes:exec',
  params: terminalParams,
  query: none,
  body: signalBody,
  result: terminalView,
  errors: [...changeErrors],
});

export const destroyTerminal = defineRoute({
  name: 'destroyTerminal',
  method: 'DELETE',
  path: '/v1/sandboxes/:sandboxId/terminals/:terminal',
  summary:
    'Ends everything that was started in it (HUP and TERM, then KILL after `graceMs`), closes its clients and forgets it. Answers when nothing is left; a terminal that is not there succeeds.',
  scope: 'sandboxes:exec',
  params: terminalParams,
  query: z.strictObject({
    graceMs: z.coerce.number().int().min(0).max(processLimits.waitMs).default(terminalLimits.graceMsDefault),
  }),
  body: none,
  result: none,
  status: 204,
  errors: [...changeErrors],
});

/** What a client says in a text message. */
export const terminalRequest = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('resize'), columns, rows }),
  z.strictObject({ type: z.literal('interrupt') }),
  /** Answered with `pong`: for clients that do not see the pings of the protocol. */
  z.strictObject({ type: z.literal('ping') }),
  signalBody.extend({ type: z.literal('signal') }),
]);
export type TerminalRequest = z.input<typeof terminalRequest>;

/**
 * What the server says in a text message. A cursor ends with a dot and a number: a client that has so many more bytes adds them to it, and
 * comes back exactly there.
 */
export type TerminalMessage =
  | { readonly type: 'attached'; readonly terminal: TerminalView; readonly cursor: string }
  | { readonly type: 'cursor'; readonly cursor: string }
  | { readonly type: 'pong' }
  /** About so many bytes are lost to this client, because it was too slow or away too long. */
  | { readonly type: 'dropped'; readonly bytes: number; readonly cursor: string }
  /** Its program has ended; the connection is closed with 1000. */
  | { readonly type: 'exit'; readonly exit: NonNullable<TerminalView['exit']> }
  /** A request was refused, and the connection stays; or it is closed with 1008 (refused) or 1011 (broken) right after. */
  | {
      readonly type: 'error';
      readonly error: {
        readonly code: string;
        readonly message: string;
        readonly details: Readonly<Record<string, unknown>>;
      };
    };
