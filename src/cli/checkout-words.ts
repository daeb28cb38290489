/**
 * Which sandbox a command line means. A word before `--` is a sandbox, by id or name; without `--` the first word is. Nothing there means the
 * sandbox of the checkout that we stand in. So `atoll exec -- ls` is the checkout's and `atoll exec box -- ls` is the sandbox `box`.
 */
import { CliError } from './cli-error.ts';
import type { CommandCall } from './command-call.ts';
import { exitCodes } from './exit-codes.ts';

export interface SandboxAndCommand {
  /** Absent: of the checkout. */
  readonly sandbox: string | undefined;
  readonly command: readonly string[];
}

export function sandboxAndCommand(call: CommandCall, words: readonly string[]): SandboxAndCommand {
  if (call.dashed === undefined) return { sandbox: words[0], command: words.slice(1) };
  const before = words.slice(0, words.length - call.dashed);
  if (before.length > 1)
    throw usage('Only one word, the sandbox, stands before "--".', 'For example: atoll exec -- npm test');
  return { sandbox: before[0], command: words.slice(before.length) };
}

export function usage(message: string, hint: string): CliError {
  return new CliError(message, { exitCode: exitCodes.usage, code: 'usage', hint });
}
