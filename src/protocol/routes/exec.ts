/** exec: one stateless command. */
import { z } from 'zod';
import { defineRoute } from '../route.ts';
import { instant, none, text } from '../schemas.ts';
import { sandboxParams } from './sandboxes.ts';

export const execLimits = {
  commandBytes: 2 * 1024 * 1024,
  stdinBytes: 64 * 1024 * 1024,
  outputBytes: 64 * 1024 * 1024,
  timeoutMs: 24 * 3600 * 1000,
} as const;

/** Bytes as text, or as base64 where they are not text. */
const bytes = z.union([z.string(), z.strictObject({ base64: z.base64() })]);

export const execResult = z.object({
  exitCode: z.int(),
  signal: z.string().nullable(),
  timedOut: z.boolean(),
  killed: z.boolean(),
  outOfMemory: z.boolean(),
  stdout: z.string(),
  stderr: z.string(),
  /** Of `stdout` and `stderr` above. In `utf8`, bytes that are not UTF-8 are shown as U+FFFD. */
  encoding: z.enum(['utf8', 'base64']),
  stdoutTruncated: z.boolean(),
  stderrTruncated: z.boolean(),
  startedAt: instant,
  durationMs: z.number(),
  operationId: z.string(),
  generation: z.int(),
});
export type ExecResult = z.output<typeof execResult>;

export const execCommand = defineRoute({
  name: 'exec',
  method: 'POST',
  path: '/v1/sandboxes/:sandboxId/exec',
  summary:
    'Runs one stateless command and answers when it ends. An array runs without a shell, a text with `bash -c` (or `sh -c`). A caller that disconnects does not stop the command, unless `stopOnDisconnect`.',
  scope: 'sandboxes:exec',
  params: sandboxParams,
  query: none,
  body: z.strictObject({
    command: z.union([z.array(z.string()).max(100_000), z.string()]),
    cwd: text({ maxLength: 4_095 }).optional(),
    /** null unsets what the sandbox sets. */
    env: z.record(z.string(), z.string().nullable()).optional(),
    user: text({ maxLength: 64 }).optional(),
    stdin: bytes.optional(),
    timeoutMs: z.int().min(1).max(execLimits.timeoutMs).optional(),
    /** Of stdout and stderr each. */
    outputLimitBytes: z.int().min(0).max(execLimits.outputBytes).default(execLimits.outputBytes),
    encoding: z.enum(['utf8', 'base64']).default('utf8'),
    stopOnDisconnect: z.boolean().default(false),
  }),
  result: execResult,
  bodyLimitBytes: Math.ceil((execLimits.stdinBytes * 4) / 3) + execLimits.commandBytes * 2,
  errors: [
    'invalid_command',
    'cwd_not_usable',
    'user_not_usable',
    'sandbox_not_found',
    'sandbox_wrong_state',
    'stale_generation',
    'lease_held',
    'lease_lost',
    'limit_exceeded',
    'sandbox_unavailable',
    'node_unavailable',
    'outcome_unknown',
  ],
});
