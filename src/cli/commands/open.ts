import { previewToken } from '../../protocol/index.ts';
import { parsePort } from '../argument-parsers.ts';
import { sandboxOrHere } from '../checkout-sandbox.ts';
import { usage } from '../checkout-words.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';

export const addOpen: AddCommand = (program, actions) => {
  withConditions(program.command('open'))
    .description('expose a port and print the address that opens it; on a desktop, also open it in a browser')
    .usage('[options] [sandbox] <port>')
    .argument('<words...>', 'the sandbox (id or name), or nothing for that of this checkout; then the port inside')
    .option('--no-browser', 'only print it')
    .action(
      actions.of<{ readonly browser: boolean }, [words: string[]]>(async (call, words) => {
        if (words.length > 2) throw usage('It is one sandbox and one port.', 'For example: atoll open 3000');
        const port = parsePort(words.at(-1) ?? '');
        const exposure = await (await sandboxOrHere(call, words.length === 2 ? words[0] : undefined)).ports.expose(
          port,
          call.conditions(),
        );
        const url = new URL(exposure.url);
        if (!exposure.public) url.searchParams.set(previewToken.query, exposure.token);
        await call.print({ ...exposure, openUrl: url.href }, () => `${url.href}\n`);
        const { env, stdout } = call.io;
        const hasDesktop = (env['DISPLAY'] ?? env['WAYLAND_DISPLAY'] ?? '') !== '';
        if (!call.options.browser || call.isJson || !stdout.isTerminal || !hasDesktop) return;
        const opened = await call.io.runHere(['xdg-open', url.href], { env: {}, signal: new AbortController().signal });
        if (opened !== 0) await call.note('atoll: no browser could be opened.');
      }),
    );
};
