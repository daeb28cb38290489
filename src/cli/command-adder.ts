/** How a command is added: each file of `commands/` exports one function of this shape. */
import { type Command, Option } from 'commander';
import { parseCount } from './argument-parsers.ts';
import type { CliIo } from './cli-io.ts';
import { CommandCall } from './command-call.ts';

export type AddCommand = (program: Command, actions: Actions) => void;

/** Turns what a command does into what commander calls. */
export class Actions {
  readonly #io: CliIo;
  readonly #finish: (exitCode: number) => void;

  constructor(io: CliIo, finish: (exitCode: number) => void) {
    this.#io = io;
    this.#finish = finish;
  }

  of<Options, Args extends readonly unknown[]>(
    work: (call: CommandCall<Options>, ...args: Args) => Promise<void>,
  ): (...given: unknown[]) => Promise<void> {
    return async (...given) => {
      // Commander calls with the arguments, then the options, then the command.
      const command = given.at(-1) as Command;
      const call = new CommandCall<Options>(this.#io, command);
      await work(call, ...(given.slice(0, -2) as unknown as Args));
      this.#finish(call.exitCode);
    };
  }
}

/** For every command that changes something. */
export function withIdempotencyKey(command: Command): Command {
  return command.option('--idempotency-key <key>', 'makes a repeat harmless: the same key never takes effect twice');
}

/** For every command that changes a sandbox. */
export function withConditions(command: Command): Command {
  return withIdempotencyKey(command)
    .option('--lease-token <token>', 'proves that you hold the lease', parseCount)
    .addOption(new Option('--generation <n>', 'only if it is this life of the sandbox').argParser(parseCount))
    .addOption(new Option('--if-match <version>', 'only if this is still its version').argParser(parseCount));
}
