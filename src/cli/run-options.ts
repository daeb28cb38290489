/** What `serve` and `node` have in common: where they listen, what they log, and how they end. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import type { AppPort, CliIo } from './cli-io.ts';

const logLevels = ['debug', 'info', 'warn', 'error'] as const;

const storageKinds = ['auto', 'subvolumes', 'pool', 'directories'] as const;

const defaultHost = '127.0.0.1';

export interface RunOptions {
  readonly data?: string;
  readonly host: string;
  readonly port: number;
  readonly logLevel?: (typeof logLevels)[number];
  readonly storage: (typeof storageKinds)[number];
}

export function withRunOptions(command: Command, options: { readonly defaultPort: number }): Command {
  return command
    .addOption(new Option('--host <address>', 'where it listens').env('ATOLL_HOST').default(defaultHost))
    .addOption(
      new Option('--port <port>', 'where it listens; 0: any free one')
        .env('ATOLL_PORT')
        .argParser(parsePort)
        .default(options.defaultPort),
    )
    .addOption(
      new Option('--log-level <level>', 'what it logs to stderr').env('ATOLL_LOG_LEVEL').choices([...logLevels]),
    )
    .addOption(
      new Option('--storage <kind>', "what sandboxes' files stand on; counts at the first start only (docs/storage.md)")
        .env('ATOLL_STORAGE')
        .choices([...storageKinds])
        .default('auto'),
    );
}

export function runOptionsOf(options: RunOptions, app: AppPort) {
  const { data, host, port, logLevel, storage } = options;
  return {
    dataDirectory: data ?? app.defaultDataDirectory(),
    host,
    port,
    storage,
    ...(logLevel !== undefined && { logLevel }),
  };
}

/** Starts, waits for SIGINT or SIGTERM, also one that comes while it starts, and closes. */
export async function untilInterrupted(io: CliIo, start: () => Promise<{ close(): Promise<void> }>): Promise<void> {
  const { promise: interrupted, resolve } = Promise.withResolvers<void>();
  const stopListening = io.onInterrupt(resolve);
  try {
    const running = await start();
    await interrupted;
    await running.close();
  } finally {
    stopListening();
  }
}

function parsePort(text: string): number {
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) throw new InvalidArgumentError('A port is 0 to 65535.');
  return port;
}
