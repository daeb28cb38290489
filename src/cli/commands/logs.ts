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
    .argument('<sandbox>', 'id or name')
    .argument('<process>', 'id or name')
    .option('-f, --follow', 'go on until it has ended')
    .option('--cursor <cursor>', 'only what came after this place')
    .action(
      actions.of<Options, [sandbox: string, process: string]>(async (call, sandboxName, processName) => {
        const { follow, cursor } = call.options;
        const process = await (await call.sandbox(sandboxName)).processes.get(processName);
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
