/**
 * How a command becomes an argv. An array is one; a text is given to a shell with `-c`. The kernel takes no single argument of
 * 128 KiB or more, so a longer text goes to the shell as a memory file on descriptor 3, which the shell reads whole and closes before
 * the first word of the text runs.
 */
import type { Command } from '../protocol/index.ts';

const argumentTextLimitBytes = 100 * 1024;

export interface ShellCommand {
  readonly argv: readonly string[];
  readonly script: Uint8Array | null;
}

export type Shell = 'bash' | 'sh';

export function shellCommand(command: Command, shell: Shell): ShellCommand {
  if (typeof command !== 'string') return { argv: command, script: null };
  const bytes = Buffer.from(command, 'utf8');
  if (bytes.byteLength <= argumentTextLimitBytes) return { argv: [`/bin/${shell}`, '-c', command], script: null };
  return { argv: [`/bin/${shell}`, '-c', readers[shell]], script: bytes };
}

/** The text begins on the line of the `exec`, so that line numbers in messages are its own. */
const readers: Record<Shell, string> = {
  bash: 'eval "exec 3<&-;$(</proc/self/fd/3)"',
  sh: 'eval "exec 3<&-;$(/bin/cat <&3)"',
};
