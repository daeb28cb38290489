/** Pause, resume, restore and fork. */
import { InvalidArgumentError } from 'commander';
import { withoutClientState } from '../../checkout/index.ts';
import { collectPair, parseCount, parseDurationOrNever } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';

const modes = ['memory', 'files', 'image'] as const;
type Mode = (typeof modes)[number];

export const addPause: AddCommand = (program, actions) => {
  withConditions(program.command('pause'))
    .description('let every process of a sandbox stand still, or end them and keep the files')
    .argument('<sandbox>', 'id or name')
    .option('--mode <mode>', 'memory (the default) keeps processes, files gives all memory back', parseMode)
    .action(
      actions.of<{ readonly mode?: Mode }, [sandbox: string]>(async (call, name) => {
        const { mode } = call.options;
        const sandbox = await call.sandbox(name);
        await sandbox.pause({ ...call.conditions(), ...(mode !== undefined && { mode }) });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}\n`);
      }),
    );
};

export const addResume: AddCommand = (program, actions) => {
  withConditions(program.command('resume'))
    .description('let a paused sandbox go on')
    .argument('<sandbox>', 'id or name')
    .option('--expires-in <time>', 'instead of the time that it had left: 30m, 2h, never', parseDurationOrNever)
    .action(
      actions.of<{ readonly expiresIn?: number | null }, [sandbox: string]>(async (call, name) => {
        const { expiresIn } = call.options;
        const sandbox = await call.sandbox(name);
        await sandbox.resume({ ...call.conditions(), ...(expiresIn !== undefined && { expiresInMs: expiresIn }) });
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}\n`);
      }),
    );
};

export const addRestore: AddCommand = (program, actions) => {
  withConditions(program.command('restore'))
    .description('put the files of a checkpoint in place of those of a sandbox; its processes end')
    .argument('<sandbox>', 'id or name')
    .argument('<checkpoint>', 'id')
    .action(
      actions.of<object, [sandbox: string, checkpoint: string]>(async (call, name, checkpoint) => {
        const sandbox = await call.sandbox(name);
        await sandbox.restore(checkpoint, call.conditions());
        await call.print(sandbox.view, () => `${sandbox.id} ${sandbox.state}, generation ${sandbox.generation}\n`);
      }),
    );
};

interface ForkOptions {
  readonly count?: number;
  readonly metadata?: Record<string, string>;
  readonly expiresIn?: number | null;
}

/** Prints the ids of those that were made; the others are told beside them, and in the exit code. */
export const addFork: AddCommand = (program, actions) => {
  withConditions(program.command('fork'))
    .description('make sandboxes that begin with the files of another, and print their ids')
    .argument('<sandbox>', 'id or name')
    .option('-n, --count <count>', 'how many, 1 to 100', parseCount)
    .option('-m, --metadata <key=value>', "instead of the source's; repeatable", collectPair)
    .option('--expires-in <time>', 'such as 30m, 2h, never', parseDurationOrNever)
    .action(
      actions.of<ForkOptions, [sandbox: string]>(async (call, name) => {
        const { count, metadata, expiresIn } = call.options;
        const sandbox = await call.sandbox(name);
        // A fork belongs to no checkout, or two would be found where one is looked for.
        const own = metadata ?? withoutClientState(sandbox.metadata);
        const forks = await sandbox.fork({
          ...call.conditions(),
          ...(count !== undefined && { count }),
          metadata: own,
          ...(expiresIn !== undefined && { expiresInMs: expiresIn }),
        });
        const items = forks.map(({ sandbox, error }) => ({
          sandbox: sandbox?.view ?? null,
          error: error === null ? null : { code: error.code, message: error.message },
        }));
        await call.print({ items }, () => items.map((item) => (item.sandbox ? `${item.sandbox.id}\n` : '')).join(''));
        for (const { error } of items) if (error !== null) await call.note(`atoll: ${error.code}: ${error.message}`);
        if (items.some(({ error }) => error !== null)) call.exitCode = exitCodes.refused;
      }),
    );
};

function parseMode(text: string): Mode {
  const mode = modes.find((each) => each === text);
  if (mode === undefined) throw new InvalidArgumentError('It is memory or files.');
  return mode;
}
