/** Lists that come in pages: the options that name one, and the word that there is another. */
import type { Command } from 'commander';
import { parseCount } from './argument-parsers.ts';
import type { CommandCall } from './command-call.ts';

export interface PageOptions {
  readonly limit?: number;
  readonly cursor?: string;
}

export function withPages(command: Command): Command {
  return command.option('--limit <count>', 'of one page', parseCount).option('--cursor <cursor>', 'the next page');
}

export function pageOf({ limit, cursor }: PageOptions): PageOptions {
  return { ...(limit !== undefined && { limit }), ...(cursor !== undefined && { cursor }) };
}

export async function noteMore(
  call: CommandCall<unknown>,
  { nextCursor }: { readonly nextCursor: string | null },
): Promise<void> {
  if (nextCursor !== null && !call.isJson) await call.note(`There are more: --cursor ${nextCursor}`);
}
