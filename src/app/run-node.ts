/** A node in a process of its own, reached over HTTP with a token that it writes beside its data. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createLogger, type LogLevel, writeFileDurably } from '../base/index.ts';
import { NodeServer, type NodeServerOptions, type StorageChoice } from '../node/index.ts';
import { Closing } from './closing.ts';
import { DataDirectory, defaultDataDirectory } from './data-directory.ts';
import { faultsFromEnvironment } from './environment.ts';
import { ensureNativeInit } from './native-init.ts';
import { layersOption, openHere, remotesOption, resolverOption, storageOption } from './serve.ts';
import { softwareVersion } from './software-version.ts';
import { portInUse } from './start-error.ts';

export interface RunNodeOptions {
  readonly dataDirectory?: string;
  readonly host?: string;
  readonly port?: number;
  readonly logLevel?: LogLevel;
  /** What sandboxes' files stand on. Default: what works best. */
  readonly storage?: StorageChoice;
  /** Made if it is not there. Default: `node-token` in the data directory. */
  readonly nodeTokenFile?: string;
}

const defaultHost = '127.0.0.1';
const defaultPort = 7071;

export interface RunningNode {
  readonly url: string;
  readonly tokenFile: string;
  close(): Promise<void>;
}

export async function runNode(options: RunNodeOptions): Promise<RunningNode> {
  const closing = new Closing();
  try {
    const log = createLogger({ stream: process.stderr, level: options.logLevel ?? 'info' });
    const directory = await DataDirectory.open(options.dataDirectory ?? defaultDataDirectory(), 'node-process');
    closing.add(() => directory.close());
    const node = await openHere({
      dataDirectory: directory.file('node'),
      initProgram: await ensureNativeInit(),
      version: await softwareVersion(),
      log,
      faults: faultsFromEnvironment(),
      ...layersOption(),
      ...remotesOption(),
      ...resolverOption(),
      ...storageOption(options.storage),
    });
    closing.add(() => node.close());
    const tokenFile = options.nodeTokenFile ?? directory.file('node-token');
    const server = await listen({
      node,
      token: await ensureToken(tokenFile),
      log,
      host: options.host ?? defaultHost,
      port: options.port ?? defaultPort,
    });
    closing.add(() => server.close());
    log.info('node serving', { url: server.url });
    return { url: server.url, tokenFile, close: () => closing.run() };
  } catch (error) {
    await closing.run();
    throw error;
  }
}

async function ensureToken(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const token = randomBytes(32).toString('hex');
  await writeFileDurably(path, `${token}\n`);
  return token;
}

async function listen(options: NodeServerOptions): Promise<NodeServer> {
  try {
    return await NodeServer.listen(options);
  } catch (cause) {
    throw portInUse(cause, options);
  }
}
