/**
 * What one run of the server is connected through. Cut, it is as if the process had been killed: nothing it does reaches
 * store, node or clock any more, and nothing is answered. What it had sent to the node before goes on there, as it would.
 */
import type { FaultPoints, Timers } from '../../src/base/index.ts';
import type { PlanWork } from '../../src/control/plans/plan-work.ts';
import type { NodeApi } from '../../src/protocol/index.ts';
import type { Store } from '../../src/store/index.ts';
import { aroundWorkspaces } from './fake-workspaces.ts';

export class CrashLine {
  readonly #cut = new AbortController();
  readonly #cancels = new Set<() => void>();

  cut(): void {
    this.#cut.abort();
    for (const cancel of this.#cancels) cancel();
    this.#cancels.clear();
  }

  store(store: Store): Store {
    return {
      transact: (work) => this.#pass(() => store.transact(work)),
      read: (work) => this.#pass(() => store.read(work)),
      findSandbox: (id) => this.#pass(() => store.findSandbox(id)),
      close: () => store.close(),
    };
  }

  faults(faults: FaultPoints): FaultPoints {
    return { hit: (name) => this.#pass(() => faults.hit(name)) };
  }

  timers(timers: Timers): Timers {
    return {
      after: (delayMs, run) => {
        if (this.#cut.signal.aborted) return () => {};
        const cancel = timers.after(delayMs, () => {
          this.#cancels.delete(cancel);
          run();
        });
        this.#cancels.add(cancel);
        return () => {
          this.#cancels.delete(cancel);
          cancel();
        };
      },
    };
  }

  node(node: NodeApi): NodeApi {
    return {
      describe: (...given) => this.#pass(() => node.describe(...given)),
      inventory: (...given) => this.#pass(() => node.inventory(...given)),
      findSandbox: (...given) => this.#pass(() => node.findSandbox(...given)),
      createSandbox: (...given) => this.#pass(() => node.createSandbox(...given)),
      startSandbox: (...given) => this.#pass(() => node.startSandbox(...given)),
      stopSandbox: (...given) => this.#pass(() => node.stopSandbox(...given)),
      deleteSandbox: (...given) => this.#pass(() => node.deleteSandbox(...given)),
      applySettings: (...given) => this.#pass(() => node.applySettings(...given)),
      exec: (...given) => this.#pass(() => node.exec(...given)),
      load: (...given) => this.#pass(() => node.load(...given)),
      findRun: (...given) => this.#pass(() => node.findRun(...given)),
      fileAction: (order) => this.#pass(() => node.fileAction(order)),
      fileChanges: (order) => this.#pass(() => node.fileChanges(order)),
      readFile: (...given) => this.#pass(() => node.readFile(...given)),
      writeFile: (...given) => this.#pass(() => node.writeFile(...given)),
      readTree: (...given) => this.#pass(() => node.readTree(...given)),
      writeTree: (...given) => this.#pass(() => node.writeTree(...given)),
      watchFiles: (order, signal) => node.watchFiles(order, AbortSignal.any([signal, this.#cut.signal])),
      templates: node.templates,
      workspaces: aroundWorkspaces(
        async () => node.workspaces,
        (_, call) => this.#pass(call),
      ),
      startProcess: (...given) => this.#pass(() => node.startProcess(...given)),
      getProcess: (...given) => this.#pass(() => node.getProcess(...given)),
      listProcesses: (...given) => this.#pass(() => node.listProcesses(...given)),
      writeStdin: (...given) => this.#pass(() => node.writeStdin(...given)),
      signalProcess: (...given) => this.#pass(() => node.signalProcess(...given)),
      killProcesses: (...given) => this.#pass(() => node.killProcesses(...given)),
      waitProcess: (...given) => this.#pass(() => node.waitProcess(...given)),
      removeProcess: (...given) => this.#pass(() => node.removeProcess(...given)),
      probePort: (...given) => this.#pass(() => node.probePort(...given)),
      listPorts: (...given) => this.#pass(() => node.listPorts(...given)),
      openPort: (...given) => this.#pass(() => node.openPort(...given)),
      followProcess: (order, signal) => node.followProcess(order, AbortSignal.any([signal, this.#cut.signal])),
      createSession: (...given) => this.#pass(() => node.createSession(...given)),
      getSession: (...given) => this.#pass(() => node.getSession(...given)),
      listSessions: (...given) => this.#pass(() => node.listSessions(...given)),
      execInSession: (...given) => this.#pass(() => node.execInSession(...given)),
      setSessionEnv: (...given) => this.#pass(() => node.setSessionEnv(...given)),
      startSessionProcess: (...given) => this.#pass(() => node.startSessionProcess(...given)),
      deleteSession: (...given) => this.#pass(() => node.deleteSession(...given)),
      branches: {
        describeStorage: () => this.#pass(() => node.branches.describeStorage()),
        checkpoint: (order) => this.#pass(() => node.branches.checkpoint(order)),
        findCheckpoint: (id) => this.#pass(() => node.branches.findCheckpoint(id)),
        listCheckpoints: () => this.#pass(() => node.branches.listCheckpoints()),
        removeCheckpoint: (id) => this.#pass(() => node.branches.removeCheckpoint(id)),
        restore: (order) => this.#pass(() => node.branches.restore(order)),
        pause: (order) => this.#pass(() => node.branches.pause(order)),
        resume: (order) => this.#pass(() => node.branches.resume(order)),
        usage: (order) => this.#pass(() => node.branches.usage(order)),
      },
      terminals: {
        open: (...given) => this.#pass(() => node.terminals.open(...given)),
        get: (...given) => this.#pass(() => node.terminals.get(...given)),
        list: (...given) => this.#pass(() => node.terminals.list(...given)),
        write: (...given) => this.#pass(() => node.terminals.write(...given)),
        resize: (...given) => this.#pass(() => node.terminals.resize(...given)),
        signal: (...given) => this.#pass(() => node.terminals.signal(...given)),
        destroy: (...given) => this.#pass(() => node.terminals.destroy(...given)),
        follow: (order, signal) => node.terminals.follow(order, AbortSignal.any([signal, this.#cut.signal])),
      },
      watch: (signal) => node.watch(AbortSignal.any([signal, this.#cut.signal])),
    };
  }

  planWork(work: PlanWork): PlanWork {
    const { changes } = work;
    return {
      changes: {
        collect: (...given) => this.#pass(() => changes.collect(...given)),
        combine: (...given) => this.#pass(() => changes.combine(...given)),
        // Part of a transaction, which is or is not there as a whole.
        publish: (...given) => changes.publish(...given),
        release: (...given) => this.#pass(() => changes.release(...given)),
      },
      drop: (...given) => this.#pass(() => work.drop(...given)),
      treeOf: (...given) => this.#pass(() => work.treeOf(...given)),
      runChecks: (...given) => this.#pass(() => work.runChecks(...given)),
    };
  }

  /** The call is made at once: in what order a server sends things is its own doing. */
  async #pass<Result>(call: () => Promise<Result>): Promise<Result> {
    if (this.#cut.signal.aborted) return new Promise(() => {});
    try {
      return await call();
    } finally {
      if (this.#cut.signal.aborted) await new Promise(() => {});
    }
  }
}
