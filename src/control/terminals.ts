/**
 * Terminals: ptys with clients that come and go. Control checks who may, which life and which lease, and passes on; the node keeps them.
 * What is typed into an attached terminal goes to the node without asking the store: the node checks life and lease itself.
 */
import {
  type BodyOf,
  type Conditions,
  isId,
  newId,
  PlatformError,
  type QueryOf,
  type routes,
  type SandboxId,
  type TerminalId,
  type TerminalItem,
  type TerminalSize,
  type TerminalTarget,
  type TerminalView,
} from '../protocol/index.ts';
import type { SandboxRecord } from '../store/index.ts';
import type { Caller } from './caller.ts';
import { type CallParts, type ChangeOrder, changeInLife, lifeOrderOf } from './change-in-life.ts';
import type { ControlContext } from './context.ts';
import { checkCommand } from './execution.ts';
import type { Operation } from './mutations.ts';
import { exitViewOf, parseSignal } from './process-views.ts';
import { checkEnvironment } from './sandbox-creation.ts';
import { lifeIn, lifeOf } from './sandbox-records.ts';
import { parsePlace, terminalViewOf, writePlace } from './terminal-views.ts';

type Routes = typeof routes;
type ExitView = NonNullable<TerminalView['exit']>;
type OpenBody = BodyOf<Routes['openTerminal']>;

/** A terminal of a sandbox that the caller named; the terminal by id or by the handle it was opened with. */
export interface TerminalAddress {
  readonly sandboxId: SandboxId;
  readonly terminal: string;
}

/** `cursor` is the place behind it. */
export type AttachedItem =
  | { readonly kind: 'begun'; readonly cursor: string }
  | { readonly kind: 'output'; readonly bytes: Uint8Array; readonly cursor: string }
  | { readonly kind: 'dropped'; readonly bytes: number; readonly cursor: string }
  | { readonly kind: 'exited'; readonly exit: ExitView };

export interface Attachment {
  readonly view: TerminalView;
  /** null: the first item tells it. */
  readonly cursor: string | null;
  readonly items: AsyncIterable<AttachedItem>;
  /** Calls that are made one after another, each when the one before is answered, arrive in that order. */
  write(bytes: Uint8Array): Promise<void>;
  resize(size: TerminalSize): Promise<void>;
  signal(wanted: { readonly signal: string | number; readonly target: TerminalTarget }): Promise<void>;
}

export class Terminals {
  readonly #context: ControlContext;
  readonly #parts: CallParts;

  constructor(context: ControlContext, parts: CallParts) {
    this.#context = context;
    this.#parts = parts;
  }

  async open(
    caller: Caller,
    sandboxId: SandboxId,
    conditions: Conditions,
    body: OpenBody,
  ): Promise<{ readonly view: TerminalView; readonly created: boolean }> {
    if (body.command !== undefined) checkCommand(body.command);
    checkEnvironment(body.env ?? {});
    // An id is given by us, so one that is not there is not made.
    if (body.id !== undefined && isId('terminal', body.id)) {
      return { view: await this.get(caller, { sandboxId, terminal: body.id }), created: false };
    }
    const asked = { caller, sandboxId, conditions, body };
    return await this.#parts.mutations.run({
      caller,
      kind: 'openTerminal',
      conditions,
      request: { sandboxId, body },
      // Both are needed to repeat it: which life was meant, and which terminal it was to be.
      about: async (tables) => {
        const life = await lifeIn(tables, sandboxId);
        return life === null ? null : `${life} ${newId('terminal', this.#context.random)}`;
      },
      effect: (operation) => this.#parts.gate.pass(sandboxId, conditions, () => this.#open(asked, operation)),
      resume: (operation) => this.#resumeOpen(asked, operation),
    });
  }

  async #open(asked: Asked, operation: Operation) {
    const { caller, sandboxId, conditions, body } = asked;
    const record = await this.#parts.records.openTo(caller, sandboxId, conditions);
    const order = {
      ...lifeOrderOf(record),
      terminalId: terminalIn(operation) ?? newId('terminal', this.#context.random),
      name: body.id ?? null,
      leaseToken: conditions.leaseToken ?? null,
      command: body.command ?? null,
      cwd: body.cwd ?? null,
      env: body.env ?? {},
      user: body.user ?? null,
      timeoutMs: body.timeoutMs ?? null,
      columns: body.columns,
      rows: body.rows,
    };
    await this.#context.faults.hit('before-terminal-on-node');
    const { terminal, created } = await this.#context.nodes.call(record.nodeId, (node) => node.terminals.open(order));
    await this.#context.faults.hit('after-terminal-on-node');
    return { view: terminalViewOf(terminal, sandboxId), created };
  }

  /** The node answers an open that it knows with the terminal it made; what may have run in a life that is over is not run again. */
  async #resumeOpen(asked: Asked, operation: Operation) {
    const record = await this.#parts.records.find(asked.sandboxId);
    const isThere = record?.teamId === asked.caller.teamId && record.state.kind === 'running';
    if (isThere && operation.subjectId?.startsWith(`${lifeOf(record)} `)) return await this.#open(asked, operation);
    const details = { operationId: operation.id, terminalId: terminalIn(operation) ?? null };
    const message = 'The terminal may have been opened in a life that is over; it is not opened again.';
    throw new PlatformError('operation_in_doubt', message, { details });
  }

  async get(caller: Caller, { sandboxId, terminal }: TerminalAddress): Promise<TerminalView> {
    const record = await this.#parts.records.get(caller, sandboxId);
    const order = { ...lifeOrderOf(record), terminal };
    const found = await this.#context.nodes.call(record.nodeId, (node) => node.terminals.get(order));
    return terminalViewOf(found, sandboxId);
  }

  async list(caller: Caller, sandboxId: SandboxId): Promise<{ items: TerminalView[] }> {
    const record = await this.#parts.records.get(caller, sandboxId);
    const found = await this.#context.nodes.call(record.nodeId, (node) => node.terminals.list(lifeOrderOf(record)));
    return { items: found.map((terminal) => terminalViewOf(terminal, sandboxId)) };
  }

  async resize(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    body: BodyOf<Routes['resizeTerminal']>,
  ): Promise<TerminalView> {
    return await this.#change('resizeTerminal', { caller, address, conditions, body }, async (record, order) => {
      const { nodes } = this.#context;
      const terminal = await nodes.call(record.nodeId, (node) => node.terminals.resize({ ...order, ...body }));
      return terminalViewOf(terminal, address.sandboxId);
    });
  }

  /** What is typed, for whoever is not attached. Calls that are made one after another arrive in that order. */
  async write(caller: Caller, address: TerminalAddress, conditions: Conditions, bytes: Uint8Array): Promise<void> {
    const { sandboxId, terminal } = address;
    const record = await this.#parts.records.openTo(caller, sandboxId, conditions);
    const order = { ...lifeOrderOf(record), terminal, leaseToken: conditions.leaseToken ?? null, bytes };
    await this.#context.nodes.call(record.nodeId, (node) => node.terminals.write(order));
  }

  async signal(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    body: BodyOf<Routes['signalTerminal']>,
  ): Promise<TerminalView> {
    const wanted = { signal: parseSignal(body.signal), target: body.target };
    return await this.#change('signalTerminal', { caller, address, conditions, body }, async (record, order) => {
      const { nodes } = this.#context;
      const terminal = await nodes.call(record.nodeId, (node) => node.terminals.signal({ ...order, ...wanted }));
      return terminalViewOf(terminal, address.sandboxId);
    });
  }

  async destroy(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    query: QueryOf<Routes['destroyTerminal']>,
  ): Promise<void> {
    const { graceMs } = query;
    await this.#change('destroyTerminal', { caller, address, conditions, body: query }, async (record, order) => {
      await this.#context.nodes.call(record.nodeId, (node) => node.terminals.destroy({ ...order, graceMs }));
      return {};
    });
  }

  /** Refuses what cannot be attached before anything is sent. The signal ends the reading and nothing else. */
  async attach(
    caller: Caller,
    address: TerminalAddress,
    conditions: Conditions,
    query: QueryOf<Routes['attachTerminal']>,
    signal: AbortSignal,
  ): Promise<Attachment> {
    const { sandboxId } = address;
    const record = await this.#parts.records.inLife(caller, sandboxId, conditions);
    const { nodes } = this.#context;
    const { nodeId } = record;
    const life = lifeOrderOf(record);
    const found = await nodes.call(nodeId, (node) => node.terminals.get({ ...life, terminal: address.terminal }));
    const { terminalId } = found;
    const from = query.cursor === undefined ? null : parsePlace(terminalId, query.cursor);
    const order = { ...life, terminal: terminalId, leaseToken: query.leaseToken ?? conditions.leaseToken ?? null };
    const following = { ...life, terminal: terminalId, from, replayBytes: query.replayBytes };
    const items = await nodes.call(nodeId, async (node) => node.terminals.follow(following, signal));
    return {
      view: terminalViewOf(found, sandboxId),
      cursor: from === null ? null : writePlace(terminalId, from),
      items: attachedItems(terminalId, items),
      write: (bytes) => nodes.call(nodeId, (node) => node.terminals.write({ ...order, bytes })),
      resize: async ({ columns, rows }) => {
        await nodes.call(nodeId, (node) => node.terminals.resize({ ...order, columns, rows }));
      },
      signal: async (wanted) => {
        const number = parseSignal(wanted.signal);
        await nodes.call(nodeId, (node) => node.terminals.signal({ ...order, signal: number, target: wanted.target }));
      },
    };
  }

  #change<Result>(
    kind: string,
    asked: {
      readonly caller: Caller;
      readonly address: TerminalAddress;
      readonly conditions: Conditions;
      readonly body: unknown;
    },
    effect: (record: SandboxRecord, order: ChangeOrder & { readonly terminal: string }) => Promise<Result>,
  ): Promise<Result> {
    const { caller, address, conditions, body } = asked;
    const { sandboxId, terminal } = address;
    const change = { caller, sandboxId, conditions, kind, request: { address, body } };
    return changeInLife(this.#parts, change, (record, order) => effect(record, { ...order, terminal }));
  }
}

interface Asked {
  readonly caller: Caller;
  readonly sandboxId: SandboxId;
  readonly conditions: Conditions;
  readonly body: OpenBody;
}

async function* attachedItems(
  terminalId: TerminalId,
  items: AsyncIterable<TerminalItem>,
): AsyncGenerator<AttachedItem, void> {
  for await (const item of items) {
    if (item.kind === 'exited') yield { kind: 'exited', exit: exitViewOf(item.exit) };
    else {
      const { place, ...rest } = item;
      yield { ...rest, cursor: writePlace(terminalId, place) };
    }
  }
}

function terminalIn(operation: Operation): TerminalId | undefined {
  const id = operation.subjectId?.split(' ')[2];
  return id !== undefined && isId('terminal', id) ? id : undefined;
}
