import { previewToken } from '../../protocol/index.ts';
import { parsePort } from '../argument-parsers.ts';
import { type AddCommand, withConditions } from '../command-adder.ts';

export const addOpen: AddCommand = (program, actions) => {
  withConditions(program.command('open'))
    .description('expose a port and print the address that opens it; on a desktop, also open it in a browser')
    .argument('<sandbox>', 'id or name')
    .argument('<port>', 'inside', parsePort)
    .option('--no-browser', 'only print it')
    .action(
      actions.of<{ readonly browser: boolean }, [sandbox: string, port: number]>(async (call, name, port) => {
        const exposure = await (await call.sandbox(name)).ports.expose(port, call.conditions());
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
