import { Option } from 'commander';
import type { AddCommand } from '../command-adder.ts';
import { type RunOptions, runOptionsOf, untilInterrupted, withRunOptions } from '../run-options.ts';

interface Options extends RunOptions {
  readonly nodeUrl?: string;
  readonly nodeTokenFile?: string;
  readonly domain?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
}

const defaultPort = 7070;

export const addServe: AddCommand = (program, actions) => {
  withRunOptions(program.command('serve'), { defaultPort })
    .description('run the platform on this machine')
    .option('--node-url <url>', 'use the node in another process, instead of one in this one')
    .option('--node-token-file <file>', 'the token that this node takes')
    .addOption(
      new Option(
        '--domain <domain>',
        'below which previews have host names, as browsers reach it: localhost, or https://preview.example.com',
      ).env('ATOLL_DOMAIN'),
    )
    .addOption(new Option('--tls-cert <file>', 'the certificate, in PEM: speak TLS').env('ATOLL_TLS_CERT'))
    .addOption(new Option('--tls-key <file>', 'its key, in PEM').env('ATOLL_TLS_KEY'))
    .action(
      actions.of<Options, []>(async (call) => {
        const { nodeUrl, nodeTokenFile, domain, tlsCert, tlsKey, data } = call.options;
        const app = await call.io.loadApp();
        await untilInterrupted(call.io, async () => {
          const server = await app.serve({
            ...runOptionsOf(call.options, app),
            ...(nodeUrl !== undefined && { nodeUrl }),
            ...(nodeTokenFile !== undefined && { nodeTokenFile }),
            ...(domain !== undefined && { domain }),
            ...(tlsCert !== undefined && { tlsCert }),
            ...(tlsKey !== undefined && { tlsKey }),
          });
          const { url, keyFile = null } = server;
          await call.print({ url, keyFile }, () =>
            welcome({ url, keyFile, data, atoll: call.io.programName, version: call.io.version }),
          );
          return server;
        });
      }),
    );
};

interface Welcome {
  readonly url: string;
  readonly keyFile: string | null;
  readonly data: string | undefined;
  readonly atoll: string;
  readonly version: string;
}

function welcome({ url, keyFile, data, atoll, version }: Welcome): string {
  const place = data === undefined ? '' : ` --data ${quoted(data)}`;
  const key =
    keyFile === null
      ? 'The first key was revoked; use another one with --key or ATOLL_API_KEY.'
      : `The key is in ${keyFile}; the command line finds it by itself.`;
  return [
    `Atoll ${version} serves at ${url}`,
    key,
    'To run a command in a new sandbox, paste:',
    '',
    `  ${atoll} exec${place} "$(${atoll} create${place})" -- uname -a`,
    '',
    `Sandboxes start from this machine's own programs; for a Debian of their own: ${atoll} template build base${place}`,
    '',
  ].join('\n');
}

function quoted(text: string): string {
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
