/**
 * Processes in memory, for tests of control, server and SDK: a test says what they write and when they end. Cursors count output bytes, and
 * starts are exact by id, as a node's are.
 */
import {
  type FollowProcessOrder,
  type NodeProcess,
  type NodeProcesses,
  PlatformError,
  type ProcessExit,
  type ProcessItem,
  type ProcessOrder,
  type StartProcessOrder,
} from '../../src/protocol/index.ts';

export class FakeProcesses implements NodeProcesses {
  readonly starts: StartProcessOrder[] = [];
  readonly signals: number[] = [];
  readonly #processes = new Map<string, FakeProcess>();
  stdin = '';

  /** As if the process wrote it. */
  write(processId: string, text: string, stream: 'stdout' | 'stderr' = 'stdout'): void {
    const process = this.#find(processId);
    process.add({ kind: 'output', stream, bytes: Buffer.from(text), cursor: process.end + Buffer.byteLength(text) });
  }

  end(processId: string, exitCode: number): void {
    const process = this.#find(processId);
    const exit: ProcessExit = {
      ...{ exitCode, signal: null, timedOut: false, killed: false, outOfMemory: false, sandboxEnded: false },
      endedAtMs: 2,
    };
    process.view = { ...process.view, exit, treeEndedAtMs: 2 };
    process.add({ kind: 'exited', exit, cursor: process.end + 1 });
    process.add({ kind: 'ended', cursor: process.end + 1 });
  }

  startProcess = async (order: StartProcessOrder): Promise<NodeProcess> => {
    const found = this.#processes.get(order.processId);
    if (found !== undefined) {
      if (order.request !== found.request) throw new PlatformError('idempotency_key_reused', 'Another request.');
      return found.view;
    }
    this.starts.push(order);
    const { processId, generation, name, command, user, stdinOpen } = order;
    const process = new FakeProcess({
      ...{ processId, generation, name, command, user, stdinOpen, pid: 7, cwd: order.cwd ?? '/workspace' },
      ...{ sessionId: null, startedAtMs: 1, exit: null, treeEndedAtMs: null, output: { first: 0, end: 0 } },
    });
    process.request = order.request;
    this.#processes.set(processId, process);
    return process.view;
  };

  getProcess = async (order: ProcessOrder): Promise<NodeProcess> => this.#find(order.process).view;

  listProcesses = async () => ({ items: [...this.#processes.values()].map(({ view }) => view), next: null });

  async *followProcess(order: FollowProcessOrder, signal: AbortSignal): AsyncGenerator<ProcessItem, void> {
    const process = this.#find(order.process);
    if (order.cursor > process.end) throw new PlatformError('invalid_request', 'No such place.');
    for (let cursor = order.cursor; !signal.aborted; ) {
      const item = process.items.find((one) => one.cursor > cursor);
      if (item === undefined) {
        if (!order.live) return;
        await process.more(signal);
        continue;
      }
      cursor = item.cursor;
      yield item;
      if (item.kind === 'ended') return;
    }
  }

  writeStdin: NodeProcesses['writeStdin'] = async ({ bytes }) => {
    this.stdin += Buffer.from(bytes).toString();
    return { offset: this.stdin.length };
  };

  signalProcess: NodeProcesses['signalProcess'] = async (order) => {
    this.signals.push(order.signal);
    return this.#find(order.process).view;
  };

  killProcesses: NodeProcesses['killProcesses'] = async () => ({ count: this.#processes.size });

  waitProcess: NodeProcesses['waitProcess'] = async (order, signal) => {
    const process = this.#find(order.process);
    while (process.view.exit === null && order.timeoutMs > 0 && !signal.aborted) await process.more(signal);
    return process.view;
  };

  removeProcess: NodeProcesses['removeProcess'] = async (order) => {
    this.#processes.delete(this.#find(order.process).view.processId);
  };

  probePort: NodeProcesses['probePort'] = async () => ({ open: false, status: null });

  #find(process: string): FakeProcess {
    const found =
      this.#processes.get(process) ?? [...this.#processes.values()].findLast(({ view }) => view.name === process);
    if (found === undefined) throw new PlatformError('process_not_found', `There is no process "${process}".`);
    return found;
  }
}

class FakeProcess {
  view: NodeProcess;
  request: string | undefined;
  readonly items: ProcessItem[] = [];
  #wake = Promise.withResolvers<void>();

  constructor(view: NodeProcess) {
    this.view = view;
  }

  get end(): number {
    return this.items.at(-1)?.cursor ?? 0;
  }

  add(item: ProcessItem): void {
    this.items.push(item);
    this.view = { ...this.view, output: { first: 0, end: item.cursor } };
    this.#wake.resolve();
    this.#wake = Promise.withResolvers<void>();
  }

  async more(signal: AbortSignal): Promise<void> {
    const aborted = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => aborted.resolve(), { once: true });
    await Promise.race([this.#wake.promise, aborted.promise]);
  }
}
