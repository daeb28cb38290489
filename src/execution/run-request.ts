/** From the order of a command, stateless or a process, to the request that init gets. */
import { frameLimitBytes } from '../base/index.ts';
import { type Command, PlatformError } from '../protocol/index.ts';
import { commandEnvironment } from './command-environment.ts';
import type { RunRequest } from './init-protocol.ts';
import { type Shell, shellCommand } from './shell-command.ts';

export const defaultCwd = '/workspace';
/** Room for everything in a RUN frame that is not counted here. */
const frameReserveBytes = 4096;

export interface RunOrder {
  readonly generation: number;
  readonly runId: string;
  readonly command: Command;
  readonly cwd: string | null;
  readonly env: Readonly<Record<string, string | null>>;
  readonly user: string | null;
  readonly timeoutMs: number | null;
}

export function runRequestOf(options: {
  readonly order: RunOrder;
  readonly shell: Shell;
  readonly sandboxEnv: Readonly<Record<string, string>>;
  readonly token: number;
  readonly stdinOpen: boolean;
}): RunRequest {
  const { order, sandboxEnv, token, stdinOpen } = options;
  const { argv, script } = shellCommand(order.command, options.shell);
  const user = order.user ?? undefined;
  const request: RunRequest = {
    run: order.runId,
    argv,
    script,
    env: commandEnvironment({ user: user ?? 'root', sandbox: sandboxEnv, call: order.env }),
    cwd: absoluteCwd(order.cwd),
    user,
    stdinOpen,
    timeoutMs: order.timeoutMs,
    token,
    generation: order.generation,
  };
  checkSize(request);
  return request;
}

export function absoluteCwd(cwd: string | null): string {
  if (cwd === null) return defaultCwd;
  return cwd.startsWith('/') ? cwd : `${defaultCwd}/${cwd}`;
}

export function checkRunOrder(order: RunOrder): void {
  const { command } = order;
  if (command.length === 0 || command[0] === '') throw new PlatformError('invalid_command', 'The command is empty.');
  const texts = typeof command === 'string' ? [command] : command;
  if (texts.some(hasNul)) throw new PlatformError('invalid_command', 'A command cannot hold a NUL byte.');
  for (const [name, value] of Object.entries(order.env)) {
    if (name === '' || name.includes('=') || hasNul(name) || hasNul(value ?? '')) {
      throw new PlatformError('invalid_request', `"${name}" cannot be an environment variable.`);
    }
  }
  if (order.cwd !== null && (order.cwd === '' || hasNul(order.cwd))) {
    throw new PlatformError('invalid_request', 'The working directory is empty or holds a NUL byte.');
  }
  if (order.user !== null && (order.user === '' || hasNul(order.user))) {
    throw new PlatformError('user_not_usable', 'The user is empty or holds a NUL byte; nothing ran.');
  }
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(order.runId)) {
    throw new PlatformError('invalid_request', 'A run id is 1 to 64 of A-Z, a-z, 0-9, "_" and "-".');
  }
}

function checkSize(request: RunRequest): void {
  const texts = [...request.argv, ...Object.entries(request.env).flat(), request.cwd, request.user ?? ''];
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text) + 8, request.script?.byteLength ?? 0);
  if (bytes <= frameLimitBytes - frameReserveBytes) return;
  throw new PlatformError('invalid_command', `The command and its environment are ${bytes} bytes; 8 MiB is the limit.`);
}

function hasNul(text: string): boolean {
  return text.includes('\0');
}
