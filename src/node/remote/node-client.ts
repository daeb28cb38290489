/**
 * A NodeApi whose node is in another process, reached over HTTP. Its errors are the node's own; on top of them a node that cannot be
 * reached is `node_unavailable`, and a connection that is lost after the order went out is `outcome_unknown`, unless the order only asks.
 */
import { randomUUID } from 'node:crypto';
import { Agent, type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import type {
  ApplySettingsOrder,
  CreateSandboxOrder,
  ExecOrder,
  ExecOutcome,
  LifeOrder,
  NodeApi,
  NodeDescription,
  NodeEvent,
  NodeInventory,
  NodeSandbox,
  NodeWorkspaces,
  RunReport,
  SandboxId,
  SandboxLoad,
  StartSandboxOrder,
  StopSandboxOrder,
} from '../../protocol/index.ts';
import { branchClient } from './branch-client.ts';
import { ByteCalls } from './byte-calls.ts';
import { lost, refusalOf } from './call-failures.ts';
import { FileClient } from './file-client.ts';
import { bytesType, jsonType, packExecCall, parseJson, readWhole, unpackOutcome } from './node-wire.ts';
import { type NodeTarget, openCall, readLines } from './open-call.ts';
import { PortClient } from './port-client.ts';
import { type NodeCalls, processClient } from './process-client.ts';
import { sessionClient } from './session-client.ts';
import { templateClient } from './template-client.ts';
import { terminalClient } from './terminal-client.ts';
import { workspaceClient } from './workspace-client.ts';

/** An abort can overtake the exec it is meant for; it is sent again until the exec is found or over. */
const abortPauseMs = 20;

export interface NodeClientOptions {
  /** As `NodeServer.url` has it. */
  readonly url: string;
  readonly token: string;
}

interface Call {
  readonly method: string;
  readonly body: string | Buffer;
  readonly type: string;
  /** Asking changes nothing, so a lost answer leaves nothing in doubt. */
  readonly asksOnly: boolean;
  readonly signal?: AbortSignal | undefined;
}

export class NodeClient implements NodeApi {
  /** No limit of connections: a long exec must not keep its own abort from being sent. */
  readonly #agent = new Agent({ keepAlive: true });
  readonly #target: NodeTarget;
  readonly #files: FileClient;
  readonly #ports: PortClient;
  readonly #calls: NodeCalls = {
    ask: (method, order, signal) => this.#ask(method, order, signal),
    order: (method, order) => this.#order(method, order),
    stream: (method, order, signal) =>
      this.#send({ method, body: JSON.stringify(order), type: jsonType, asksOnly: true, signal }),
  };
  readonly #processes = processClient(this.#calls);
  readonly terminals = terminalClient(this.#calls);
  readonly branches = branchClient(this.#calls);
  readonly templates = templateClient(this.#calls);
  readonly workspaces: NodeWorkspaces;
  readonly #sessions = sessionClient({
    ask: (method, order) => this.#ask(method, order),
    order: (method, order) => this.#order(method, order),
    exec: (method, order, signal) => this.#exec(method, order, signal),
  });

  constructor(options: NodeClientOptions) {
    this.#target = { url: options.url.replace(/\/+$/, ''), token: options.token, agent: this.#agent };
    const byteCalls = new ByteCalls(this.#target);
    this.#files = new FileClient(byteCalls);
    this.workspaces = workspaceClient(byteCalls);
    this.#ports = new PortClient(this.#target);
  }

  close(): void {
    this.#agent.destroy();
    this.#ports.close();
  }

  describe(signal?: AbortSignal): Promise<NodeDescription> {
    return this.#ask('describe', {}, signal);
  }

  inventory(signal?: AbortSignal): Promise<NodeInventory> {
    return this.#ask('inventory', {}, signal);
  }

  findSandbox(sandboxId: SandboxId): Promise<NodeSandbox | undefined> {
    return this.#ask('findSandbox', { sandboxId });
  }

  createSandbox(order: CreateSandboxOrder): Promise<NodeSandbox> {
    return this.#order('createSandbox', order);
  }

  startSandbox(order: StartSandboxOrder): Promise<NodeSandbox> {
    return this.#order('startSandbox', order);
  }

  stopSandbox(order: StopSandboxOrder): Promise<NodeSandbox> {
    return this.#order('stopSandbox', order);
  }

  deleteSandbox(order: LifeOrder): Promise<void> {
    return this.#order('deleteSandbox', order);
  }

  applySettings(order: ApplySettingsOrder): Promise<NodeSandbox> {
    return this.#order('applySettings', order);
  }

  load(order: LifeOrder): Promise<SandboxLoad> {
    return this.#ask('load', order);
  }

  findRun(order: LifeOrder & { readonly runId: string }): Promise<RunReport> {
    return this.#ask('findRun', order);
  }

  exec(order: ExecOrder, signal?: AbortSignal): Promise<ExecOutcome> {
    return this.#exec('exec', order, signal);
  }

  async #exec<Outcome extends ExecOutcome>(
    method: string,
    order: { readonly stdin: Uint8Array | null },
    signal?: AbortSignal,
  ): Promise<Outcome> {
    const callId = randomUUID();
    const over = new AbortController();
    const onAbort = () => void this.#abortExec(callId, over.signal);
    const call = { method, body: packExecCall(callId, order), type: bytesType, asksOnly: false };
    const answer = this.#call(call);
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort);
    try {
      return unpackOutcome(await answer) as Outcome;
    } finally {
      over.abort();
      signal?.removeEventListener('abort', onAbort);
    }
  }

  watch(signal: AbortSignal): AsyncIterable<NodeEvent> {
    // Opened now, not when the first event is asked for, as a node in this process would.
    const opening = this.#send({ method: 'watch', body: '', type: jsonType, asksOnly: true, signal });
    opening.catch(() => {}); // The reader hears of it.
    return readLines(opening, signal);
  }

  readonly fileAction: NodeApi['fileAction'] = (order) => this.#files.fileAction(order);
  readonly fileChanges: NodeApi['fileChanges'] = (order) => this.#files.fileChanges(order);
  readonly readFile: NodeApi['readFile'] = (order, signal) => this.#files.readFile(order, signal);
  readonly writeFile: NodeApi['writeFile'] = (order, bytes, signal) => this.#files.writeFile(order, bytes, signal);
  readonly readTree: NodeApi['readTree'] = (order, signal) => this.#files.readTree(order, signal);
  readonly writeTree: NodeApi['writeTree'] = (order, tar, signal) => this.#files.writeTree(order, tar, signal);
  readonly watchFiles: NodeApi['watchFiles'] = (order, signal) => this.#files.watchFiles(order, signal);

  readonly startProcess: NodeApi['startProcess'] = (order) => this.#processes.startProcess(order);
  readonly getProcess: NodeApi['getProcess'] = (order) => this.#processes.getProcess(order);
  readonly listProcesses: NodeApi['listProcesses'] = (order) => this.#processes.listProcesses(order);
  readonly followProcess: NodeApi['followProcess'] = (order, signal) => this.#processes.followProcess(order, signal);
  readonly writeStdin: NodeApi['writeStdin'] = (order) => this.#processes.writeStdin(order);
  readonly signalProcess: NodeApi['signalProcess'] = (order) => this.#processes.signalProcess(order);
  readonly killProcesses: NodeApi['killProcesses'] = (order) => this.#processes.killProcesses(order);
  readonly waitProcess: NodeApi['waitProcess'] = (order, signal) => this.#processes.waitProcess(order, signal);
  readonly removeProcess: NodeApi['removeProcess'] = (order) => this.#processes.removeProcess(order);
  readonly probePort: NodeApi['probePort'] = (order, signal) => this.#processes.probePort(order, signal);

  readonly createSession: NodeApi['createSession'] = (order) => this.#sessions.createSession(order);
  readonly getSession: NodeApi['getSession'] = (order) => this.#sessions.getSession(order);
  readonly listSessions: NodeApi['listSessions'] = (order) => this.#sessions.listSessions(order);
  readonly execInSession: NodeApi['execInSession'] = (order, signal) => this.#sessions.execInSession(order, signal);
  readonly setSessionEnv: NodeApi['setSessionEnv'] = (order) => this.#sessions.setSessionEnv(order);
  readonly startSessionProcess: NodeApi['startSessionProcess'] = (order) => this.#sessions.startSessionProcess(order);
  readonly deleteSession: NodeApi['deleteSession'] = (order) => this.#sessions.deleteSession(order);
  readonly listPorts: NodeApi['listPorts'] = (order) => this.#ask('listPorts', order);
  readonly openPort: NodeApi['openPort'] = (order, signal) => this.#ports.openPort(order, signal);

  async #abortExec(callId: string, over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      try {
        const { found } = await this.#ask<{ found: boolean }>('abort', { callId });
        if (found) return;
        await delay(abortPauseMs, undefined, { signal: over });
      } catch {
        return; // The exec's own connection tells what became of it.
      }
    }
  }

  async #ask<Result>(method: string, order: unknown, signal?: AbortSignal): Promise<Result> {
    return this.#json({ method, body: JSON.stringify(order), type: jsonType, asksOnly: true, signal });
  }

  async #order<Result>(method: string, order: unknown): Promise<Result> {
    return this.#json({ method, body: JSON.stringify(order), type: jsonType, asksOnly: false });
  }

  async #json<Result>(call: Call): Promise<Result> {
    const { result } = parseJson(await this.#call(call)) as { result: Result };
    return result;
  }

  async #call(call: Call): Promise<Buffer> {
    const response = await this.#send(call);
    try {
      return await readWhole(response);
    } catch (error) {
      throw lost(call, error);
    }
  }

  /** Resolves with the head of an answer that is not a refusal. */
  async #send(call: Call): Promise<IncomingMessage> {
    const headers = { 'content-type': call.type, 'content-length': Buffer.byteLength(call.body) };
    const { outgoing, answered } = openCall(this.#target, { ...call, headers });
    outgoing.end(call.body);
    const response = await answered;
    if (response.statusCode === 200) return response;
    throw await refusalOf(call, response);
  }
}
