/**
 * Processes: commands with a life of their own. Control checks who may, which life and which lease, and passes on; the node keeps the
 * records and the output. Nothing is written to the store for a process, except under an idempotency key: its start and end are in no
 * event, because a synced commit per process would cost more than the process.
 */
import { hash } from 'node:crypto';
import {
  type BodyOf,
  type Conditions,
  type FollowProcessOrder,
  isId,
  newId,
  PlatformError,
  type PortReport,
  type ProcessId,
  type ProcessItem,
  type ProcessOutputItem,
  type ProcessView,
  processLimits,
  type QueryOf,
  type routes,
  type SandboxId,
  type StartProcessOrder,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import { Ahead } from './ahead.ts';
import type { Caller } from './caller.ts';
import { type CallParts, type ChangeOrder, changeInLife, lifeOrderOf } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { bytesOf, checkCommand } from './execution.ts';
import type { Operation } from './mutations.ts';
import {
  type FollowedItem,
  followedItemOf,
  itemViewOf,
  parseOutputCursor,
  parseSignal,
  processViewOf,
  type StartedItem,
  writeOutputCursor,
} from './process-views.ts';
import { checkEnvironment } from './sandbox-creation.ts';
import { lifeIn, lifeOf } from './sandbox-records.ts';

type Routes = typeof routes;
type StartBody = BodyOf<Routes['startProcess']>;
type OutputQuery = QueryOf<Routes['readProcessOutput']>;

/** A process of a sandbox that the caller named; the process by id or by name. */
export interface ProcessAddress {
  readonly sandboxId: SandboxId;
  readonly process: string;
}

export class Processes {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async start(caller: Caller, sandboxId: SandboxId, conditions: Conditions, body: StartBody): Promise<ProcessView> {
    return await this.#begin({ caller, sandboxId, conditions, body }, () => {});
  }

  /** Starts it and follows its output from the first byte on: the process comes first. `signal` ends the reading and never the process. */
  async *startAndFollow(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: StartBody,
    signal: AbortSignal,
  ): AsyncGenerator<StartedItem, void> {
    let items: Ahead<FollowedItem> | undefined;
    try {
      // Its output is waited for before the process is told, and before its key is journalled. Whoever may start it may read it.
      const process = await this.#begin({ caller, sandboxId, conditions, body }, ({ id, generation }, nodeId) => {
        const order = { sandboxId, generation, process: id, cursor: 0, live: true };
        items = new Ahead(this.#followed(nodeId, id, order, signal));
      });
      const { id, generation } = process;
      items ??= new Ahead(this.follow(caller, { sandboxId, process: id }, { generation }, {}, signal));
      yield { kind: 'process', process, position: 0, cursor: writeOutputCursor(process.id, 0) };
      yield* items.rest();
    } finally {
      await items?.end();
    }
  }

  /** `onStarted` hears of a process that runs before its start is journalled as answered; of one that is answered from the journal it does not. */
  async #begin(
    asked: Asked,
    onStarted: (process: ProcessView, nodeId: SandboxRecord['nodeId']) => void,
  ): Promise<ProcessView> {
    const { caller, sandboxId, conditions, body } = asked;
    checkCommand(body.command);
    checkEnvironment(body.env ?? {});
    const { generation } = conditions;
    return await this.#parts.mutations.run({
      caller,
      kind: 'startProcess',
      conditions,
      request: { sandboxId, body },
      // Both are needed to repeat it: which life was meant, and which process it was to be.
      about: async (tables) => {
        const life = await lifeIn(tables, sandboxId);
        return life === null ? null : `${life} ${newId('process', this.#context.random)}`;
      },
      // Whoever names a life is refused in a later one, and within it the node starts a process once, whoever else has forgotten it.
      ...(generation !== undefined && {
        exactSubject: (key: string) =>
          `${lifeOf({ id: sandboxId, generation })} ${processOfKey({ teamId: caller.teamId, key, sandboxId, generation })}`,
      }),
      effect: (operation) =>
        this.#parts.gate.pass(sandboxId, conditions, async () => {
          const { process, nodeId } = await this.#start(asked, operation);
          onStarted(process, nodeId);
          return process;
        }),
      resume: (operation) => this.#resumeStart(asked, operation),
    });
  }

  async #start(asked: Asked, operation: Operation) {
    const { caller, sandboxId, conditions, body } = asked;
    const record = await this.#parts.records.openTo(caller, sandboxId, conditions);
    const processId = processIn(operation) ?? newId('process', this.#context.random);
    const order = startOrderOf(record, conditions, { body, processId, request: operation.fingerprint });
    await this.#context.faults.hit('before-process-on-node');
    const started = await this.#context.nodes.call(record.nodeId, (node) => node.startProcess(order));
    await this.#context.faults.hit('after-process-on-node');
    return { process: processViewOf(started, sandboxId), nodeId: record.nodeId };
  }

  /** The node answers a start that it knows with the process it made; what may have run in a life that is over is not run again. */
  async #resumeStart(asked: Asked, operation: Operation): Promise<ProcessView> {
    const record = await this.#parts.records.find(asked.sandboxId);
    const isThere = record?.teamId === asked.caller.teamId && record.state.kind === 'running';
    if (isThere && operation.subjectId?.startsWith(`${lifeOf(record)} `)) {
      return (await this.#start(asked, operation)).process;
    }
    const details = { operationId: operation.id, processId: processIn(operation) ?? null };
    const message = 'The process may have been started in a life that is over; it is not started again.';
    throw new PlatformError('operation_in_doubt', message, { details });
  }

  async get(caller: Caller, address: ProcessAddress, conditions: Conditions): Promise<ProcessView> {
    const { order, nodeId } = await this.#order(caller, address, conditions);
    const found = await this.#context.nodes.call(nodeId, (node) => node.getProcess(order));
    return processViewOf(found, address.sandboxId);
  }

  async list(caller: Caller, sandboxId: SandboxId, conditions: Conditions, query: QueryOf<Routes['listProcesses']>) {
    const record = await this.#parts.records.inLife(caller, sandboxId, conditions);
    const { sessionId = null, cursor: after = null, limit } = query;
    const order = { ...lifeOrderOf(record), sessionId, after, limit };
    const page = await this.#context.nodes.call(record.nodeId, (node) => node.listProcesses(order));
    return { items: page.items.map((process) => processViewOf(process, sandboxId)), nextCursor: page.next };
  }

  /** One page of what is there now. */
  async output(
    caller: Caller,
    address: ProcessAddress,
    conditions: Conditions,
    query: OutputQuery,
    signal: AbortSignal,
  ) {
    const { processId, nodeId, order } = await this.#known(caller, address, conditions);
    let cursor = query.cursor === undefined ? 0 : parseOutputCursor(processId, query.cursor);
    const items: ProcessOutputItem[] = [];
    let bytes = 0;
    for await (const item of this.#follow(nodeId, { ...order, cursor, live: false }, signal)) {
      items.push(itemViewOf(followedItemOf(item, processId), query.encoding));
      cursor = item.cursor;
      bytes += item.kind === 'output' ? item.bytes.byteLength : 0;
      if (bytes >= processLimits.pageBytes) break;
    }
    return {
      items,
      cursor: writeOutputCursor(processId, cursor),
      hasMore: bytes >= processLimits.pageBytes,
    };
  }

  /** Replay, then live, until its tree has ended. A cursor that is not of this process is refused before the first item. */
  async *follow(
    caller: Caller,
    address: ProcessAddress,
    conditions: Conditions,
    query: Pick<OutputQuery, 'cursor'>,
    signal: AbortSignal,
  ): AsyncGenerator<FollowedItem, void> {
    const { processId, nodeId, order } = await this.#known(caller, address, conditions);
    const cursor = query.cursor === undefined ? 0 : parseOutputCursor(processId, query.cursor);
    yield* this.#followed(nodeId, processId, { ...order, cursor, live: true }, signal);
  }

  async writeStdin(
    caller: Caller,
    address: ProcessAddress,
    conditions: Conditions,
    body: BodyOf<Routes['writeProcessStdin']>,
  ): Promise<{ readonly offset: number }> {
    const { stdin, offset = null, close } = body;
    const bytes = stdin === undefined ? new Uint8Array() : bytesOf(stdin);
    if (bytes.byteLength > processLimits.stdinBytes) {
      const message = `One write has at most ${processLimits.stdinBytes} bytes.`;
      throw new PlatformError('payload_too_large', message, { details: { limitBytes: processLimits.stdinBytes } });
    }
    return await this.#change('writeProcessStdin', { caller, address, conditions, body }, async (record, order) =>
      this.#context.nodes.call(record.nodeId, (node) => node.writeStdin({ ...order, bytes, offset, close })),
    );
  }

  async signal(
    caller: Caller,
    address: ProcessAddress,
    conditions: Conditions,
    body: BodyOf<Routes['signalProcess']>,
  ): Promise<ProcessView> {
    const wanted = { signal: parseSignal(body.signal), target: body.target, graceMs: body.graceMs ?? null };
    return await this.#change('signalProcess', { caller, address, conditions, body }, async (record, order) => {
      const { nodes } = this.#context;
      const process = await nodes.call(record.nodeId, (node) => node.signalProcess({ ...order, ...wanted }));
      return processViewOf(process, address.sandboxId);
    });
  }

  async killAll(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: BodyOf<Routes['killProcesses']>,
  ): Promise<{ readonly count: number }> {
    const wanted = { signal: parseSignal(body.signal), graceMs: body.graceMs ?? null };
    const address = { sandboxId, process: '' };
    return await this.#change('killProcesses', { caller, address, conditions, body }, async (record, order) => {
      const { process: _, ...life } = order;
      return await this.#context.nodes.call(record.nodeId, (node) => node.killProcesses({ ...life, ...wanted }));
    });
  }

  async wait(
    caller: Caller,
    address: ProcessAddress,
    conditions: Conditions,
    query: QueryOf<Routes['waitProcess']>,
    signal: AbortSignal,
  ): Promise<ProcessView> {
    const { order, nodeId } = await this.#order(caller, address, conditions);
    const wanted = { ...order, for: query.for, timeoutMs: query.timeoutMs };
    const process = await this.#context.nodes.call(nodeId, (node) => node.waitProcess(wanted, signal));
    return processViewOf(process, address.sandboxId);
  }

  async remove(caller: Caller, address: ProcessAddress, conditions: Conditions): Promise<void> {
    await this.#change('removeProcess', { caller, address, conditions, body: {} }, async (record, order) => {
      await this.#context.nodes.call(record.nodeId, (node) => node.removeProcess(order));
      return {};
    });
  }

  async probePort(
    caller: Caller,
    params: { readonly sandboxId: SandboxId; readonly port: number },
    conditions: Conditions,
    query: QueryOf<Routes['probePort']>,
    signal: AbortSignal,
  ): Promise<PortReport> {
    const record = await this.#parts.records.runningIn(caller, params.sandboxId, conditions);
    const family = query.family === undefined ? null : query.family === '4' ? 4 : 6;
    const { timeoutMs, path: httpPath = null } = query;
    const order = { ...lifeOrderOf(record), port: params.port, family, httpPath, timeoutMs } as const;
    return await this.#context.nodes.call(record.nodeId, (node) => node.probePort(order, signal));
  }

  #change<Result>(
    kind: string,
    asked: {
      readonly caller: Caller;
      readonly address: ProcessAddress;
      readonly conditions: Conditions;
      readonly body: unknown;
    },
    effect: (record: SandboxRecord, order: ChangeOrder & { readonly process: string }) => Promise<Result>,
  ): Promise<Result> {
    const { caller, address, conditions, body } = asked;
    const { sandboxId, process } = address;
    const change = { caller, sandboxId, conditions, kind, request: { address, body } };
    return changeInLife(this.#parts, change, (record, order) => effect(record, { ...order, process }));
  }

  async #order(caller: Caller, address: ProcessAddress, conditions: Conditions) {
    const record = await this.#parts.records.inLife(caller, address.sandboxId, conditions);
    return { nodeId: record.nodeId, order: { ...lifeOrderOf(record), process: address.process } };
  }

  /** With its id, which cursors carry, where the caller gave a name. */
  async #known(caller: Caller, address: ProcessAddress, conditions: Conditions) {
    const { nodeId, order } = await this.#order(caller, address, conditions);
    if (isId('process', address.process)) return { nodeId, order, processId: address.process };
    const { processId } = await this.#context.nodes.call(nodeId, (node) => node.getProcess(order));
    return { nodeId, processId, order: { ...order, process: processId as string } };
  }

  async *#followed(
    nodeId: SandboxRecord['nodeId'],
    processId: ProcessId,
    order: FollowProcessOrder,
    signal: AbortSignal,
  ): AsyncGenerator<FollowedItem, void> {
    for await (const item of this.#follow(nodeId, order, signal)) yield followedItemOf(item, processId);
  }

  async *#follow(
    nodeId: SandboxRecord['nodeId'],
    order: FollowProcessOrder,
    signal: AbortSignal,
  ): AsyncGenerator<ProcessItem, void> {
    const items = await this.#context.nodes.call(nodeId, async (node) => node.followProcess(order, signal));
    yield* items;
  }
}

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly body: StartBody;
}

/** The process that a start under this key is, in this life: the same for every repeat, also when nothing else of it was kept. */
function processOfKey(of: { teamId: string; key: string; sandboxId: SandboxId; generation: number }): ProcessId {
  const { teamId, sandboxId, generation, key } = of;
  let block = 0;
  return newId('process', (bytes) => {
    const text = `${block++} ${teamId} ${sandboxId} ${generation} ${key}`;
    bytes.set(hash('sha256', text, 'buffer').subarray(0, bytes.byteLength));
    return bytes;
  });
}

function processIn(operation: Operation): ProcessId | undefined {
  const id = operation.subjectId?.split(' ')[2];
  return id !== undefined && isId('process', id) ? id : undefined;
}

function startOrderOf(
  record: SandboxRecord,
  conditions: Conditions,
  about: { readonly body: StartBody; readonly processId: ProcessId; readonly request: string | undefined },
): StartProcessOrder {
  const { body, processId, request } = about;
  return {
    ...lifeOrderOf(record),
    processId,
    request,
    name: body.name ?? null,
    leaseToken: conditions.leaseToken ?? null,
    command: body.command,
    cwd: body.cwd ?? null,
    env: body.env ?? {},
    user: body.user ?? null,
    stdinOpen: body.stdin === 'open',
    timeoutMs: body.timeoutMs ?? null,
    graceMs: body.graceMs,
    keepBytes: body.keepBytes,
    autoCleanup: body.autoCleanup,
  };
}
