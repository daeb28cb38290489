/**
 * The whole platform in one process: store, node, control, HTTP. Opened in that order and closed in reverse; sandboxes live on
 * after either end, graceful or not.
 */
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import {
  createLogger,
  type FaultPoints,
  KeptFiles,
  type Logger,
  type LogLevel,
  SystemClock,
  systemTimers,
} from '../base/index.ts';
import { Control, defaultControlSettings, NodeDirectory } from '../control/index.ts';
import { NodeClient, SandboxNode, type SandboxNodeOptions, type StorageChoice } from '../node/index.ts';
import { isPlatformError, type NodeApi, type NodeId, newId, RandomPool } from '../protocol/index.ts';
import { createHttpServer, type HttpServerOptions, parsePreviewDomain } from '../server/index.ts';
import { openSqliteStore, type Store, StoreOpenError } from '../store/index.ts';
import { Closing } from './closing.ts';
import { countBuffersWithObjects } from './collect-garbage.ts';
import { DataDirectory, defaultDataDirectory } from './data-directory.ts';
import { deliverByHttp } from './deliver-by-http.ts';
import {
  aptFromEnvironment,
  faultsFromEnvironment,
  layersFromEnvironment,
  poolSizesFromEnvironment,
  privateHostsFromEnvironment,
  resolversFromEnvironment,
  settingsFromEnvironment,
} from './environment.ts';
import { KnownNodes } from './known-nodes.ts';
import { ensureNativeInit } from './native-init.ts';
import { softwareVersion } from './software-version.ts';
import { nodeNotOpened, portInUse, StartError } from './start-error.ts';

export interface ServeOptions {
  readonly dataDirectory?: string;
  readonly host?: string;
  /** 0: any free one. */
  readonly port?: number;
  readonly logLevel?: LogLevel;
  /** What sandboxes' files stand on. Default: what works best. */
  readonly storage?: StorageChoice;
  /** A node in another process, with the file that holds its token. Absent: the node is part of this process. */
  readonly nodeUrl?: string;
  readonly nodeTokenFile?: string;
  /** Below which host name previews are: `localhost`, `preview.example.com`, `https://preview.example.com`. */
  readonly domain?: string;
  /** Files in PEM; both or none. With them the server speaks TLS. */
  readonly tlsCert?: string;
  readonly tlsKey?: string;
}

const defaultHost = '127.0.0.1';
const defaultPort = 7070;

export interface RunningServer {
  readonly url: string;
  /** Where the first key is; undefined once it was revoked. */
  readonly keyFile: string | undefined;
  /** A second close joins the first. */
  close(): Promise<void>;
}

export async function serve(options: ServeOptions): Promise<RunningServer> {
  countBuffersWithObjects();
  const closing = new Closing();
  try {
    return await open(options, closing);
  } catch (error) {
    await closing.run();
    throw error;
  }
}

async function open(options: ServeOptions, closing: Closing): Promise<RunningServer> {
  const logger = createLogger({ stream: process.stderr, level: options.logLevel ?? 'info' });
  const faults = faultsFromEnvironment();
  const directory = await DataDirectory.open(options.dataDirectory ?? defaultDataDirectory(), 'server');
  closing.add(() => directory.close());
  const store = await openStore(directory, logger, faults);
  closing.add(() => store.close());
  const version = await softwareVersion();
  const nodes = new NodeDirectory();
  const node = await openNode({ options, directory, logger, faults, version, closing });
  nodes.add(node.nodeId, node.api);
  const secret = await directory.secret();
  const control = new Control({
    store,
    nodes,
    clock: new SystemClock(),
    timers: systemTimers,
    logger,
    faults,
    random: new RandomPool().fill,
    settings: { ...defaultControlSettings, ...settingsFromEnvironment() },
    secret,
    serverRun: newId('request'),
    deliver: deliverByHttp,
    archives: await KeptFiles.open(directory.file('backups')),
  });
  await control.open();
  closing.add(() => control.close());
  const key = await control.who.ensureFirstKey();
  const keyFile = key === undefined ? undefined : await directory.writeKey(key);
  const server = createHttpServer({
    ...{ control, logger, version, e2bSecret: secret },
    ...previewOption(options),
    ...(await tlsOption(options)),
  });
  closing.add(() => server.close());
  const { url } = await listen(server, options);
  await directory.writeServer(url);
  logger.info('serving', { url, dataDirectory: directory.path });
  return { url, keyFile, close: () => closing.run() };
}

function previewOption({ domain, tlsCert }: ServeOptions): Pick<HttpServerOptions, 'previewDomain'> {
  if (domain === undefined) return {};
  const previewDomain = parsePreviewDomain(domain);
  // Where no port is said it is the one that we listen on, in the way that we speak there.
  const isOurs = previewDomain?.port === null && tlsCert !== undefined;
  if (previewDomain !== undefined)
    return { previewDomain: isOurs ? { ...previewDomain, scheme: 'https' } : previewDomain };
  throw new StartError(
    'settings_invalid',
    `"${domain}" is no domain; one is "preview.example.com", or with "https://".`,
  );
}

async function tlsOption({ tlsCert, tlsKey }: ServeOptions): Promise<Pick<HttpServerOptions, 'tls'>> {
  if (tlsCert === undefined && tlsKey === undefined) return {};
  if (tlsCert === undefined || tlsKey === undefined) {
    throw new StartError('settings_invalid', 'TLS needs both --tls-cert and --tls-key.');
  }
  try {
    const [cert, key] = await Promise.all([readFile(tlsCert, 'utf8'), readFile(tlsKey, 'utf8')]);
    createSecureContext({ cert, key });
    return { tls: { cert, key } };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StartError('settings_invalid', `The certificate or its key cannot be used: ${why}.`, { cause });
  }
}

async function openStore(directory: DataDirectory, logger: Logger, faults: FaultPoints): Promise<Store> {
  try {
    return await openSqliteStore({
      path: directory.file('atoll.db'),
      faults,
      onUnreadable: (table, id, error) => logger.error('a record cannot be read', { table, id, error }),
    });
  } catch (cause) {
    if (!(cause instanceof StoreOpenError)) throw cause;
    throw new StartError(cause.code === 'newer_version' ? 'directory_newer' : 'directory_unusable', cause.message, {
      cause,
    });
  }
}

interface NodeParts {
  readonly options: ServeOptions;
  readonly directory: DataDirectory;
  readonly logger: Logger;
  readonly faults: FaultPoints;
  readonly version: string;
  readonly closing: Closing;
}

async function openNode(parts: NodeParts): Promise<{ nodeId: NodeId; api: NodeApi }> {
  const { options, directory, logger, faults, version, closing } = parts;
  if (options.nodeUrl !== undefined)
    return await connectNode(options.nodeUrl, options.nodeTokenFile, directory, closing);
  const node = await openHere({
    dataDirectory: directory.file('node'),
    initProgram: await ensureNativeInit(),
    version,
    log: logger.child({ part: 'node' }),
    faults,
    ...layersOption(),
    ...remotesOption(),
    ...resolverOption(),
    ...storageOption(options.storage),
  });
  closing.add(() => node.close());
  const { nodeId } = await node.describe();
  return { nodeId, api: node };
}

/** Says what kept the node from opening in words for whoever starts it. */
export function openHere(options: SandboxNodeOptions): Promise<SandboxNode> {
  return SandboxNode.open(options).catch((error: unknown) => {
    throw nodeNotOpened(error);
  });
}

async function connectNode(url: string, tokenFile: string | undefined, directory: DataDirectory, closing: Closing) {
  if (tokenFile === undefined)
    throw new StartError('node_unreachable', 'A node at an address needs --node-token-file.');
  const token = await readToken(tokenFile);
  const api = new NodeClient({ url, token });
  closing.add(async () => api.close());
  const known = new KnownNodes(directory);
  const remembered = await known.find(url);
  if (remembered !== undefined) return { nodeId: remembered, api };
  try {
    const { nodeId } = await api.describe();
    await known.remember(url, nodeId);
    return { nodeId, api };
  } catch (cause) {
    if (!isPlatformError(cause)) throw cause;
    const message = `The node at ${url} does not answer (${cause.message}). Start it with "atoll node", or correct the address.`;
    throw new StartError('node_unreachable', message, { cause });
  }
}

async function readToken(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StartError('node_unreachable', `The node's token cannot be read: ${why}. Correct --node-token-file.`, {
      cause,
    });
  }
}

export function resolverOption(): Pick<SandboxNodeOptions, 'resolver'> {
  const servers = resolversFromEnvironment();
  return servers === undefined ? {} : { resolver: { servers } };
}

export function remotesOption(): Pick<SandboxNodeOptions, 'remotes'> {
  return { remotes: { allowedHosts: privateHostsFromEnvironment() } };
}

export function layersOption(): Pick<SandboxNodeOptions, 'layersDirectory' | 'aptDirectory'> {
  const layersDirectory = layersFromEnvironment();
  return { aptDirectory: aptFromEnvironment(), ...(layersDirectory !== undefined && { layersDirectory }) };
}

export function storageOption(storage: StorageChoice | undefined): Pick<SandboxNodeOptions, 'storage' | 'poolSizes'> {
  const poolSizes = poolSizesFromEnvironment();
  return { ...(storage !== undefined && { storage }), ...(poolSizes !== undefined && { poolSizes }) };
}

async function listen(server: ReturnType<typeof createHttpServer>, options: ServeOptions): Promise<{ url: string }> {
  const { host = defaultHost, port = defaultPort } = options;
  try {
    return await server.listen(host, port);
  } catch (cause) {
    throw portInUse(cause, { host, port });
  }
}
