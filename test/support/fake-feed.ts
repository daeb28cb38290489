/** An init for the tables of a node: what it lists and what it tells by itself is what a test says, and in which order. */
import type { ControlConnection, InitClient, RunEntry } from '../../src/execution/index.ts';

export class FakeFeed {
  /** What init lists. */
  runs: RunEntry[] = [];
  /** Called when a list was made and is on its way. */
  onList: () => void | Promise<void> = () => {};
  #tell: (run: RunEntry) => void = () => {};
  #lost = Promise.withResolvers<void>();

  get client(): InitClient {
    const openControl = async () => this.#connection();
    const control: InitClient['control'] = async (ask) => await ask(this.#connection());
    return { openControl, control, gone: new Promise(() => {}) } as Partial<InitClient> as InitClient;
  }

  /** An event on the connection that subscribed last. */
  tell(run: RunEntry): void {
    this.#tell(run);
  }

  /** The connection is lost; the table opens another one by itself. */
  lose(): void {
    const lost = this.#lost;
    this.#lost = Promise.withResolvers<void>();
    lost.resolve();
  }

  #connection(): ControlConnection {
    const connection: Partial<ControlConnection> = {
      closed: this.#lost.promise,
      close: () => {},
      subscribe: async (onEvent) => {
        this.#tell = onEvent;
      },
      listRuns: async () => {
        const runs = [...this.runs];
        await this.onList();
        return runs;
      },
    };
    return connection as ControlConnection;
  }
}

export function runEntry(run: string, more: Partial<RunEntry> = {}): RunEntry {
  return {
    ...{ run, kind: 'session', session: null, pid: 7, state: 'running', waitStatus: 0, cause: 'itself' },
    ...{ startedBootMs: 1, endedBootMs: 0 },
    ...more,
  };
}
