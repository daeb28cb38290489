import { parseDuration } from '../argument-parsers.ts';
import { sandboxAndProcess } from '../checkout-sandbox.ts';
import type { AddCommand } from '../command-adder.ts';
import { exitCodes } from '../exit-codes.ts';

interface Options {
  readonly tree?: boolean;
  readonly timeout?: number;
}

export const addWait: AddCommand = (program, actions) => {
  program
    .command('wait')
    .description('wait until a process has ended, and exit as it did')
    .usage('[options] [sandbox] <process>')
    .argument('<words...>', 'the sandbox (id or name), or nothing for that of this checkout; then the process')
    .option('--tree', 'until everything it started has ended too')
    .option('-t, --timeout <time>', 'such as 30s, 5m; the process goes on', parseDuration)
    .action(
      actions.of<Options, [words: string[]]>(async (call, words) => {
        const { tree = false, timeout } = call.options;
        const process = await sandboxAndProcess(call, words);
        const interrupted = new AbortController();
        const stopListening = call.io.onInterrupt(() => interrupted.abort());
        try {
          const view = await process.wait({
            for: tree ? 'tree' : 'exit',
            signal: interrupted.signal,
            ...(timeout !== undefined && { timeoutMs: timeout }),
          });
          call.exitCode = view.exit?.exitCode ?? exitCodes.outcomeUnknown;
          await call.print(view, () => '');
        } finally {
          stopListening();
        }
      }),
    );
};
