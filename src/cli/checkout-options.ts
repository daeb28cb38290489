/** Options of the commands that work on the sandbox of a checkout. */
import type { Command } from 'commander';
import { parseDuration } from './argument-parsers.ts';

export function withCheckoutOptions(command: Command): Command {
  return command
    .option('--config <file>', 'of a checkout: its definition, instead of atoll.yml')
    .option('--wait <time>', 'of a checkout: how long to wait while somebody else uses the sandbox', parseDuration)
    .option('--no-wait', 'of a checkout: fail at once while somebody else uses the sandbox')
    .option('--no-sync', 'of a checkout: send nothing in and bring nothing back')
    .option('-v, --verbose', 'of a checkout: tell each step');
}
