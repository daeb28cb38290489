import { sandboxAndProcess } from '../checkout-sandbox.ts';
import type { AddCommand } from '../command-adder.ts';
import { presentOutput, printOutput } from '../process-printing.ts';

interface Options {
  readonly follow?: boolean;
  readonly cursor?: string;
}

export const addLogs: AddCommand = (program, actions) => {
  program
    .command('logs')
    .description('print the output of a process, stdout and stderr apart')
    .usage('[options] [sandbox] <process>')
    .argument('<words...>', 'the sandbox (id or name), or nothing for that of this checkout; then the process')
    .option('-f, --follow', 'go on until it has ended')
    .option('--cursor <cursor>', 'only what came after this place')
    .action(
      actions.of<Options, [words: string[]]>(async (call, words) => {
        const { follow, cursor } = call.options;
        const process = await sandboxAndProcess(call, words);
        const interrupted = new AbortController();
        const stopListening = call.io.onInterrupt(() => interrupted.abort());
        const from = { ...(cursor !== undefined && { cursor }), signal: interrupted.signal };
        try {
          await printOutput(call, follow ? process.output(from) : presentOutput(process, from));
        } finally {
          stopListening();
        }
      }),
    );
};
