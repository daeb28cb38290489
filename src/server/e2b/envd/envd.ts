/**
 * The agent that E2B's SDK expects in each sandbox, served from here over what control offers. Nothing of it runs in the sandbox.
 * Every request but the question whether the sandbox lives brings the sandbox's token, or for one file a signature.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { SandboxId } from '../../../protocol/index.ts';
import type { EnvdHandler, EnvdOptions, EnvdSandbox } from '../envd-handler.ts';
import { readMetric } from '../metric-reading.ts';
import { Accounts } from './accounts.ts';
import { allowOrigins } from './cors.ts';
import { Directories } from './directories.ts';
import { Entries } from './entries.ts';
import { EnvdError, refusalOf, SandboxGone } from './envd-error.ts';
import { FileTransfers } from './file-transfers.ts';
import { FilesystemService } from './filesystem-service.ts';
import { defaultEnvironment, ProcessService } from './process-service.ts';
import { answerCall, type Method } from './rpc.ts';
import { checkFileAccess } from './signatures.ts';
import { Watchers } from './watchers.ts';

interface Asked extends Pick<Parameters<typeof answerCall>[1], 'request' | 'response' | 'sandbox' | 'user'> {
  readonly path: string;
  readonly query: URLSearchParams;
}

export class Envd implements EnvdHandler {
  readonly #options: EnvdOptions;
  readonly #methods: ReadonlyMap<string, Method>;
  readonly #transfers: FileTransfers;

  constructor(options: EnvdOptions) {
    const { control, timers, logger } = options;
    const { files } = control;
    const accounts = new Accounts(files);
    const entries = new Entries(files, accounts);
    const directories = new Directories(files, entries);
    const parts = { files, accounts, entries, directories };
    const filesystem = new FilesystemService({ ...parts, watchers: new Watchers(timers) });
    const process = new ProcessService(control, accounts);
    this.#options = options;
    this.#transfers = new FileTransfers({ ...parts, logger });
    this.#methods = new Map([
      ...Object.entries(process.methods()).map(([name, method]) => [`/process.Process/${name}`, method] as const),
      ...Object.entries(filesystem.methods()).map(
        ([name, method]) => [`/filesystem.Filesystem/${name}`, method] as const,
      ),
    ]);
  }

  async handle(request: IncomingMessage, response: ServerResponse, sandbox: EnvdSandbox): Promise<void> {
    const { path, query } = addressOf(request);
    if (allowOrigins(request, response)) return;
    try {
      this.#checkAccess(request, sandbox, { path, query });
      await this.#answer({ request, response, sandbox, path, query, user: userIn(request) });
    } catch (error) {
      this.#fail(response, sandbox, error);
    } finally {
      // What nobody reads any more would hold the connection.
      request.resume();
    }
  }

  isProven(request: IncomingMessage, sandboxId: SandboxId): boolean {
    const { path, query } = addressOf(request);
    try {
      this.#checkProof(request, sandboxId, { path, query });
      return true;
    } catch (error) {
      if (error instanceof EnvdError) return false;
      throw error;
    }
  }

  #checkAccess(
    request: IncomingMessage,
    { sandboxId }: EnvdSandbox,
    about: { readonly path: string; readonly query: URLSearchParams },
  ): void {
    if (about.path === '/health' && request.method === 'GET') return;
    this.#checkProof(request, sandboxId, about);
  }

  #checkProof(
    request: IncomingMessage,
    sandboxId: SandboxId,
    about: { readonly path: string; readonly query: URLSearchParams },
  ): void {
    const { tokens } = this.#options;
    const method = request.method ?? 'GET';
    const header = request.headers['x-access-token'];
    const token = Array.isArray(header) ? header[0] : header;
    if (about.path === '/files') {
      checkFileAccess({ method, query: about.query, header: token }, { sandboxId, tokens, nowMs: Date.now() });
    } else if (!tokens.verifyEnvdAccess(sandboxId, token)) {
      const message = 'unauthorized access, please provide a valid access token or method signing if supported';
      throw new EnvdError('unauthenticated', message);
    }
  }

  async #answer(asked: Asked): Promise<void> {
    const { request, response, path } = asked;
    const rpc = this.#methods.get(path);
    if (rpc !== undefined) {
      if (request.method !== 'POST') throw new EnvdError('unimplemented', 'A call is a POST.', { status: 405 });
      return await answerCall(rpc, { ...asked, ...this.#options });
    }
    switch (`${request.method === 'HEAD' ? 'GET' : request.method} ${path}`) {
      case 'GET /health':
        await this.#running(asked.sandbox);
        response.writeHead(204, { 'Cache-Control': 'no-store' }).end();
        return;
      case 'GET /envs': {
        const { env } = await this.#running(asked.sandbox);
        return send(response, 200, { ...defaultEnvironment, ...env });
      }
      case 'GET /metrics':
        return await this.#metrics(asked);
      case 'GET /files':
        return await this.#transfers.download({ ...asked, leaving: leavingOf(asked) });
      case 'POST /files':
        return await this.#transfers.upload({ ...asked, leaving: leavingOf(asked) });
      case 'POST /files/compose':
        return await this.#transfers.compose({ ...asked, leaving: leavingOf(asked) });
      default:
        throw new EnvdError('not_found', `There is no ${request.method} ${path.slice(0, 200)}.`);
    }
  }

  async #metrics({ response, sandbox }: Asked): Promise<void> {
    const metric = await readMetric(this.#options, sandbox.caller, await this.#running(sandbox));
    const mebibytes = (bytes: number) => Math.floor(bytes / 1024 ** 2);
    send(response, 200, {
      ts: metric.timestampUnix,
      cpu_count: metric.cpuCount,
      cpu_used_pct: metric.cpuUsedPct,
      mem_total: metric.memTotal,
      mem_used: metric.memUsed,
      mem_cache: metric.memCache,
      mem_total_mib: mebibytes(metric.memTotal),
      mem_used_mib: mebibytes(metric.memUsed),
      disk_total: metric.diskTotal,
      disk_used: metric.diskUsed,
    });
  }

  async #running({ caller, sandboxId }: EnvdSandbox) {
    const view = await this.#options.control.sandboxes.get(caller, sandboxId);
    if (view.state !== 'running') throw new SandboxGone(`The sandbox is ${view.state}.`);
    return view;
  }

  #fail(response: ServerResponse, { sandboxId }: EnvdSandbox, error: unknown): void {
    const refusal = refusalOf(error);
    if (refusal === undefined) this.#options.logger.error('a bug', { sandboxId, error });
    if (response.headersSent || response.destroyed) {
      response.destroy();
      return;
    }
    if (refusal instanceof SandboxGone) {
      send(response, 502, { sandboxId, message: 'The sandbox was not found', code: 502 });
      return;
    }
    const { status, message } = refusal ?? { status: 500, message: 'Something went wrong here.' };
    send(response, status, { code: status, message });
  }
}

function addressOf(request: IncomingMessage): { readonly path: string; readonly query: URLSearchParams } {
  const [path = '/', search = ''] = (request.url ?? '/').split('?', 2);
  return { path, query: new URLSearchParams(search) };
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'Content-Type': 'application/json; charset=utf-8' }).end(JSON.stringify(body));
}

function leavingOf({ response, sandbox }: Asked): AbortSignal {
  const leaving = new AbortController();
  response.once('close', () => {
    if (!response.writableFinished) leaving.abort();
  });
  return AbortSignal.any([leaving.signal, sandbox.ending]);
}

/** The name in `Authorization: Basic`; there is no password. */
function userIn({ headers }: IncomingMessage): string | undefined {
  const found = /^Basic ([A-Za-z0-9+/=_-]{1,400})$/i.exec(headers.authorization ?? '');
  if (found === null) return undefined;
  const name = Buffer.from(found[1]!, 'base64').toString('utf8').split(':')[0]!;
  if (name === '') return undefined;
  if (name.length > 64 || name.includes('\0')) throw new EnvdError('unauthenticated', 'invalid username');
  return name;
}
