/** The shapes of `sandbox.exec`: what a caller gives and gets, and how both stand on the wire. */
import type { BodyInputOf, ExecResult as ExecAnswer, routes } from '../protocol/index.ts';
import { decodeBase64, encodeBase64 } from './base64.ts';
import type { CallOptions } from './connection.ts';

export interface ExecOptions extends CallOptions {
  readonly cwd?: string;
  /** For this command only. null unsets what the sandbox sets; what is undefined is left out. */
  readonly env?: Readonly<Record<string, string | null | undefined>>;
  readonly user?: string;
  readonly stdin?: string | Uint8Array;
  readonly timeoutMs?: number;
  /** Of stdout and stderr each. */
  readonly outputLimitBytes?: number;
  /**
   * Aborting it stops the command: the call is rejected with the signal's reason (an `AbortError` unless another was
   * given) and the sandbox kills the command with everything it started.
   */
  readonly signal?: AbortSignal;
}

export interface ExecResult extends Omit<ExecAnswer, 'encoding'> {
  /** As text: bytes that are not UTF-8 are shown as U+FFFD. */
  readonly stdout: string;
  readonly stderr: string;
  readonly stdoutBytes: Uint8Array;
  readonly stderrBytes: Uint8Array;
}

export function execBody(
  command: string | readonly string[],
  options: ExecOptions,
): BodyInputOf<(typeof routes)['exec']> {
  const { cwd, env, user, stdin, timeoutMs, outputLimitBytes, signal } = options;
  return {
    command: typeof command === 'string' ? command : [...command],
    encoding: 'base64',
    stopOnDisconnect: signal !== undefined,
    ...(cwd !== undefined && { cwd }),
    ...(env !== undefined && { env: definedOf(env) }),
    ...(user !== undefined && { user }),
    ...(stdin !== undefined && { stdin: typeof stdin === 'string' ? stdin : { base64: encodeBase64(stdin) } }),
    ...(timeoutMs !== undefined && { timeoutMs }),
    ...(outputLimitBytes !== undefined && { outputLimitBytes }),
  };
}

export function execResultOf(answer: ExecAnswer): ExecResult {
  const { encoding, ...rest } = answer;
  const bytesOf = (text: string) => (encoding === 'base64' ? decodeBase64(text) : new TextEncoder().encode(text));
  const stdoutBytes = bytesOf(answer.stdout);
  const stderrBytes = bytesOf(answer.stderr);
  const text = new TextDecoder('utf-8', { ignoreBOM: true });
  return { ...rest, stdout: text.decode(stdoutBytes), stderr: text.decode(stderrBytes), stdoutBytes, stderrBytes };
}

function definedOf(env: Readonly<Record<string, string | null | undefined>>): Record<string, string | null> {
  const defined: Record<string, string | null> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined) defined[name] = value;
  return defined;
}
