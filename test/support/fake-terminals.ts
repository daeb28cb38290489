/** Terminals in memory, for tests of control: they echo what is typed, and end when a test says so. */
import {
  type NodeTerminal,
  type NodeTerminals,
  type OpenTerminalOrder,
  PlatformError,
  type TerminalItem,
  type TerminalOrder,
} from '../../src/protocol/index.ts';

export class FakeTerminals implements NodeTerminals {
  readonly opens: OpenTerminalOrder[] = [];
  readonly signals: { readonly signal: number; readonly target: string }[] = [];
  readonly #terminals = new Map<string, FakeTerminal>();

  open: NodeTerminals['open'] = async (order) => {
    const found = this.#terminals.get(order.terminalId) ?? this.#named(order.name ?? '');
    if (found !== undefined) return { terminal: found.view, created: false };
    this.opens.push(order);
    const { terminalId, generation, name, command, user, columns, rows } = order;
    const terminal = new FakeTerminal({
      ...{ terminalId, generation, name, command, user, columns, rows, pid: 7, cwd: order.cwd ?? '/workspace' },
      ...{ startedAtMs: 1, exit: null },
    });
    this.#terminals.set(terminalId, terminal);
    return { terminal: terminal.view, created: true };
  };

  get: NodeTerminals['get'] = async (order) => this.#find(order).view;
  list: NodeTerminals['list'] = async () => [...this.#terminals.values()].map(({ view }) => view);

  async *follow(
    order: Parameters<NodeTerminals['follow']>[0],
    signal: AbortSignal,
  ): AsyncGenerator<TerminalItem, void> {
    const terminal = this.#find(order);
    let at = (order.from?.cursor ?? 0) + (order.from?.skip ?? 0);
    while (!signal.aborted) {
      if (at < terminal.output.byteLength) {
        const bytes = terminal.output.subarray(at);
        at = terminal.output.byteLength;
        yield { kind: 'output', bytes, place: { cursor: at, skip: 0 } };
      } else {
        await terminal.more(signal);
      }
    }
  }

  write: NodeTerminals['write'] = async (order) => this.#find(order).add(order.bytes);

  resize: NodeTerminals['resize'] = async (order) => {
    const terminal = this.#find(order);
    terminal.view = { ...terminal.view, columns: order.columns, rows: order.rows };
    return terminal.view;
  };

  signal: NodeTerminals['signal'] = async (order) => {
    this.signals.push({ signal: order.signal, target: order.target });
    return this.#find(order).view;
  };

  destroy: NodeTerminals['destroy'] = async (order) => {
    this.#terminals.delete(this.#find(order).view.terminalId);
  };

  #named(name: string): FakeTerminal | undefined {
    return [...this.#terminals.values()].find(({ view }) => view.name === name);
  }

  #find({ terminal }: TerminalOrder): FakeTerminal {
    const found = this.#terminals.get(terminal) ?? this.#named(terminal);
    if (found === undefined) throw new PlatformError('terminal_not_found', `There is no terminal "${terminal}".`);
    return found;
  }
}

class FakeTerminal {
  view: NodeTerminal;
  output = new Uint8Array();
  #wake = Promise.withResolvers<void>();

  constructor(view: NodeTerminal) {
    this.view = view;
  }

  add(bytes: Uint8Array): void {
    this.output = Buffer.concat([this.output, bytes]);
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }

  async more(signal: AbortSignal): Promise<void> {
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => aborted.resolve(), { once: true });
    await Promise.race([this.#wake.promise, aborted.promise]);
  }
}
