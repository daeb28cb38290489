import type { AddCommand } from '../command-adder.ts';
import { type RunOptions, runOptionsOf, untilInterrupted, withRunOptions } from '../run-options.ts';

const defaultPort = 7071;

export const addNode: AddCommand = (program, actions) => {
  withRunOptions(program.command('node'), { defaultPort })
    .description('run only the node, in a process of its own; a server reaches it with --node-url')
    .action(
      actions.of<RunOptions, []>(async (call) => {
        const app = await call.io.loadApp();
        await untilInterrupted(call.io, async () => {
          const node = await app.runNode(runOptionsOf(call.options, app));
          const { url, tokenFile } = node;
          await call.print({ url, tokenFile }, () =>
            [
              `The node answers at ${url}`,
              'To serve with it, paste:',
              '',
              `  ${call.io.programName} serve --node-url ${url} --node-token-file ${tokenFile}`,
              '',
              '',
            ].join('\n'),
          );
          return node;
        });
      }),
    );
};
